; The loss head: tokens in chunks, vocabulary (257, padded to 264) split over tp 2, value and gradient in one
; Func and one loop, so that logits exist for one chunk only.
;
; Shows: role loss; sliced tokens and targets, an invariant weight, a stacked dx and summed dW and loss;
; three matmuls a chunk; dlogits in the buffer of the logits; M(tp) and P(tp) of the row statistics; the
; metric accumulates over micro batches.
;
; test: mutate s/^buf b1 scratch func=head.chunk @8704/buf b1 scratch func=head.chunk @8000/ => is live while the loop uses the same bytes
; test: mutate s/P(tp) = matmul %13 %3 {sum=.v.}/P(tp) = matmul %5 %3 {sum=[v]}/ => overwrites %5 (logits), which is used later
; test: mutate s/ce_sum %5 %7 %2$/ce_sum %5 %6 %2/ => is a partial maximum over tp
; test: mutate s/pad 264/pad 265/ => cannot be cut
; test: mutate s/trips=4$/trips=5/ => has 4 pieces for 5 trips
; test: mutate s/^  accum .w.grad %8$// => nothing is added to variable /w.grad
mesh tp=2
op ce_max "l[.. v] -> m[..]:f32" kernel partial
op ce_sum "l[.. v], m[..]:f32, t[..]:i32 -> z[..]:f32, p[..]:f32" kernel partial
op ce_loss "m[..]:f32, z[..]:f32, p[..]:f32, t[..]:i32 -> loss[]:f32" kernel
op ce_grad "l[.. v], m[..]:f32, z[..]:f32, t[..]:i32 -> dl[.. v]" kernel inplace=dl:l
dim b = 2
dim s = 16
dim t = 32
dim c = 4
dim n = 8
dim d = 16
dim v = 257 pad 264
region grads @0 bytes=12288
region params @12288 bytes=12288
region scratch @24576 bytes=24576
region io @49152 bytes=8192
arena 57344
var w : f32[v@tp d] weight run saved init=normal(0.0,0.02) @12288
var w.grad : f32[v@tp d] accum step of=w
var loss_sum : f32[] metric step @8704
buf b1 scratch func=head.chunk @8704 bytes=4224 life=1..10
buf b2 scratch func=head.chunk @12928 bytes=64 life=2..3
buf b3 scratch func=head.chunk @12992 bytes=64 life=3..8
buf b4 scratch func=head.chunk @13056 bytes=128 life=4..5
buf b5 scratch func=head.chunk @13184 bytes=64 life=4..6
buf b6 scratch func=head.chunk @13248 bytes=64 life=5..8
buf b7 scratch func=head.chunk @13312 bytes=64 life=6..7
buf b8 scratch func=head @0 bytes=8448 life=3..4
buf b9 scratch func=head @8448 bytes=4 life=3..5

func head.chunk loop
  in %1 : f32[n d] "x" : slice
  in %2 : i32[n] nograd "targets" : slice
  in %3 : f32[v@tp d] : invariant
  %4 : f32[d v@tp] on %3 +0[1 16] = transpose %3 {dims=[d v]}
  %5 : f32[n v@tp] "logits" @b1 = matmul %1 %4 {sum=[d]}
  %6 : f32[n] M(tp) @b2 = ce_max %5
  %7 : f32[n] @b3 = all_reduce %6 {axis="tp"}
  %8 : f32[n] P(tp) @b4, %9 : f32[n] P(tp) @b5 = ce_sum %5 %7 %2
  %10 : f32[n] @b6 = all_reduce %8 {axis="tp"}
  %11 : f32[n] @b7 = all_reduce %9 {axis="tp"}
  %12 : f32[] = ce_loss %7 %10 %11 %2
  %13 : f32[n v@tp] on %5 +0[264 1] "dlogits" = ce_grad %5 %7 %10 %2
  %14 : f32[n d] P(tp) = matmul %13 %3 {sum=[v]}
  %15 : f32[v@tp d] = matmul %13 %1 {sum=[n]}
  out %12:sum %14:stack %15:sum
end

func head loss
  formal /w : f32[v d] weight
  formal /w.grad : f32[v d] accum
  formal /loss_sum : f32[] metric
  in %1 : f32[t d] "x"
  in %2 : i32[t] nograd "targets"
  %3 : f32[v@tp d] = read /w
  %4 : f32[c n d] on %1 +0[128 16 1] = split %1 {dim=t dims=[c n]}
  %5 : i32[c n] on %2 +0[8 1] = split %2 {dim=t dims=[c n]}
  %6 : f32[] @b9, %7 : f32[c n d] P(tp), %8 : f32[v@tp d] @b8 = loop head.chunk %4 %5 %3 trips=4
  accum /w.grad %8
  accum /loss_sum %6
  %9 : f32[t d] P(tp) on %7 +0[16 1] = merge %7 {dims=[c n] dim=t}
  %10 : f32[t d] = all_reduce %9 {axis="tp"}
  out %10
end

reg x : f32[t d] io @49152
reg targets : i32[t] io @51200
reg dx : f32[t d] @53248

chain bwd loss (x targets) -> (dx)
  call head (x targets) -> (dx)
end

step 0
  loss
end
