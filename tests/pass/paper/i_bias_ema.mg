; Router bias and moving average on two data-parallel ranks, with every byte placed as after plan.
;
; Shows: a stat (counts) summed over micro batches and ranks, read and reset by the update; a bias that is
; no weight but is saved; an average of a weight as a Var beside it; a node for the last micro batch only;
; regions, flat arena, buffers, saves and regs with their bytes.
;
; test: mutate s/^reg dg : \(.*\) @12544/reg dg : \1 @12352/ => live in the same bytes
; test: mutate s/^buf b2 scratch func=update @0 bytes=128/buf b2 scratch func=update @0 bytes=64/ => does not fit into buffer b2
; test: mutate s/ life=1..3$/ life=1..2/ => its buffer b2 lives 1..2
; test: mutate s/^region grads @4096/region grads @4000/ => overlap
; test: mutate s/^  accum w.grad %5$// => nothing is added to variable w.grad
; test: mutate s/^chain upd/chian upd/ => no statement starts with
; test: mutate s/ = keep %5 {axis=.dp.}$/ = copy %5/ => nothing before it is
mesh dp=2
op scores "l[t x], bias[x] -> gate[t x], count[x]" kernel partial
op scores_bwd "gate[t x], dy[t x] -> dl[t x]" kernel inplace=dl:dy
op mse "y[t x], target[t x] -> loss[]:f32, dy[t x]" kernel partial
op bias_step "bias[x], count[x] -> b2[x], zero[x]" kernel inplace=b2:bias inplace=zero:count
op sgd "w[n], g[n] -> w2[n]" kernel inplace=w2:w
op ema "e[n], w[n] -> e2[n]" kernel inplace=e2:e
dim t = 16
dim d = 8
dim x = 4
dim n = 32
region params @0 bytes=4096
region grads @4096 bytes=4096
region state @8192 bytes=4096
region saved @12288 bytes=4096
region scratch @16384 bytes=4096
region io @20480 bytes=4096
arena 24576
flat weight f32 weight elems=32 @0
flat grad f32 accum elems=32 @4096 P(dp)
flat ema f32 stat elems=32 @8192
var router.w : f32[d x] weight run saved init=normal(0.0,0.02) group=decay flat=weight+0 @0
var router.w.grad : f32[d x] P(dp) accum step of=router.w flat=grad+0 @4096
var router.bias : f32[x] stat run saved @8448
var router.counts : f32[x] P(dp) stat step @8512
var router.w.ema : f32[d x] stat run saved flat=ema+0 @8192
var loss_sum : f32[] P(dp) metric step @8576
buf b1 scratch func=gate.bwd @0 bytes=128 life=1..2
buf b2 scratch func=update @0 bytes=128 life=1..3
buf b3 scratch func=bias @0 bytes=16 life=2..5
buf b4 scratch func=head @0 bytes=4 life=0..1
buf b5 scratch func=gate @0 bytes=16 life=3..4

func gate fwd path=router
  formal w : f32[d x] weight
  formal bias : f32[x] stat
  formal counts : f32[x] stat
  in %1 : f32[t@dp d] "h"
  %2 : f32[d x] = read w
  %3 : f32[t@dp x] = matmul %1 %2 {sum=[d]}
  %4 : f32[x] nograd = read bias
  %5 : f32[t@dp x] "gate", %6 : f32[x] P(dp) nograd @b5 = scores %3 %4
  accum counts %6
  out %5
end

func head loss
  formal /loss_sum : f32[] metric
  in %1 : f32[t@dp x] "gate"
  in %2 : f32[t@dp x] nograd "target"
  %3 : f32[] P(dp) @b4, %4 : f32[t@dp x] "dgate" = mse %1 %2
  accum /loss_sum %3
  out %4
end

func gate.bwd bwd twin=gate path=router
  formal w.grad : f32[d x] accum
  in %1 : f32[t@dp x] "dgate"
  in %2 : f32[t@dp d] "h"
  in %3 : f32[t@dp x] "gate"
  %4 : f32[t@dp x] on %1 +0[4 1] = scores_bwd %3 %1
  %5 : f32[d x] P(dp) @b1 = matmul %2 %4 {sum=[t]}
  accum w.grad %5
end

func update upd
  formal /weight : f32[n] weight
  formal /grad : f32[n] accum
  formal /ema : f32[n] stat
  %1 : f32[n] P(dp) = read /grad
  %2 : f32[n] @b2 = all_reduce %1 {axis="dp"}
  %3 : f32[n] = read /weight
  %4 : f32[n] on %3 +0[1] = sgd %3 %2
  write /weight %4
  %5 : f32[n] = read /ema
  %6 : f32[n] on %5 +0[1] = ema %5 %4 {decay=0.999} when=last_micro
  write /ema %6
end

func bias upd path=router
  formal bias : f32[x] stat
  formal counts : f32[x] stat
  %1 : f32[x] = read bias
  %2 : f32[x] P(dp) = read counts
  %3 : f32[x] @b3 = all_reduce %2 {axis="dp"}
  %4 : f32[x] on %1 +0[1], %5 : f32[x] on %3 +0[1] = bias_step %1 %3 {rate=0.001}
  write bias %4
  %6 : f32[x] P(dp) = keep %5 {axis="dp"}
  write counts %6
end

reg h : f32[t@dp d] io @20480
reg target : f32[t@dp x] io @20992
reg g : f32[t@dp x] saved @12288
reg dg : f32[t@dp x] @12544

chain fwd fwd (h) -> (g)
  call gate (h) -> (g) at=router
end

chain bwd bwd (g h target) -> ()
  call head (g target) -> (dg)
  call gate.bwd (dg h g) -> () at=router twin=1
end

chain upd upd () -> ()
  call update () -> () bind=(flat:weight flat:grad flat:ema)
  call bias () -> () at=router
end

step 0
  fwd
  bwd
  upd
end
