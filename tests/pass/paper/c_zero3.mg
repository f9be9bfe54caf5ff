; ZeRO-3 on four ranks: a rank keeps a flat range of every layer's weights, gathers them one call ahead
; (skew), and scatters each gradient as soon as it is summed.
;
; Shows: place F(dp) on weights and accumulators; all_gather F -> R with skew=1, which prints as a rotated
; loop with its prologue; the gather again in the backward; reduce_scatter P -> F in front of the accum; a
; widths that dp does not divide (d = 10 over 4 ranks) are no trouble for a flat range.
;
; test: mutate s/^  accum u.grad %10$/  accum u.grad %9/ => differ in placement
; test: mutate s/matmul %1 %3 {sum=.d.}$/matmul %1 %2 {sum=[d]}/ => comes from %2, which is a flat range
; test: mutate s/flat=grad+900$/flat=grad+800/ => overlap in flat arena grad
; test: mutate s/flat=weight+900$/flat=weight+901/ => reaches beyond flat arena weight
mesh dp=4
op relu2 "x[.. f] -> y[.. f]" kernel
op relu2_bwd "x[.. f], dy[.. f] -> dx[.. f]" kernel
op mse "x[b s d], t[b s]:i32 -> loss[]:f32, dx[b s d]" kernel partial
op sgd "w[n], g[n] -> w2[n]" kernel inplace=w2:w
dim b = 4
dim s = 2
dim d = 10
dim f = 30
dim n = 1200
flat weight f32 weight elems=1200 F(dp)
flat grad f32 accum elems=1200 F(dp)
var layers.0.w : f32[d f] F(dp) weight run saved init=normal(0.0,0.02) flat=weight+0
var layers.0.u : f32[f d] F(dp) weight run saved init=normal(0.0,0.02) flat=weight+300
var layers.1.w : f32[d f] F(dp) weight run saved init=normal(0.0,0.02) flat=weight+600
var layers.1.u : f32[f d] F(dp) weight run saved init=normal(0.0,0.02) flat=weight+900
var layers.0.w.grad : f32[d f] F(dp) accum step of=layers.0.w flat=grad+0
var layers.0.u.grad : f32[f d] F(dp) accum step of=layers.0.u flat=grad+300
var layers.1.w.grad : f32[d f] F(dp) accum step of=layers.1.w flat=grad+600
var layers.1.u.grad : f32[f d] F(dp) accum step of=layers.1.u flat=grad+900
var loss_sum : f32[] P(dp) metric step
members weight layers.0.w layers.0.u layers.1.w layers.1.u
members grad layers.0.w.grad layers.0.u.grad layers.1.w.grad layers.1.u.grad

func block fwd path=layers.*
  formal w : f32[d f] weight
  formal u : f32[f d] weight
  in %1 : f32[b@dp s d] resid "x"
  %2 : f32[d f] F(dp) = read w
  %3 : f32[d f] = all_gather %2 {axis="dp"} skew=1
  %4 : f32[f d] F(dp) = read u
  %5 : f32[f d] = all_gather %4 {axis="dp"} skew=1
  %6 : f32[b@dp s f] "h" = matmul %1 %3 {sum=[d]}
  %7 : f32[b@dp s f] = relu2 %6
  %8 : f32[b@dp s d] resid = matmul %7 %5 {sum=[f]}
  out %8
end

func block.bwd bwd twin=block path=layers.*
  formal w : f32[d f] weight
  formal u : f32[f d] weight
  formal w.grad : f32[d f] accum
  formal u.grad : f32[f d] accum
  in %1 : f32[b@dp s d] "dy"
  in %2 : f32[b@dp s d] "x"
  in %3 : f32[b@dp s f] "h"
  %4 : f32[d f] F(dp) = read w
  %5 : f32[d f] = all_gather %4 {axis="dp"} skew=1
  %6 : f32[f d] F(dp) = read u
  %7 : f32[f d] = all_gather %6 {axis="dp"} skew=1
  %8 : f32[b@dp s f] = relu2 %3
  %9 : f32[f d] P(dp) = matmul %8 %1 {sum=[b s]}
  %10 : f32[f d] F(dp) = reduce_scatter %9 {axis="dp"}
  accum u.grad %10
  %11 : f32[b@dp s f] = matmul %1 %7 {sum=[d]}
  %12 : f32[b@dp s f] = relu2_bwd %3 %11
  %13 : f32[d f] P(dp) = matmul %2 %12 {sum=[b s]}
  %14 : f32[d f] F(dp) = reduce_scatter %13 {axis="dp"}
  accum w.grad %14
  %15 : f32[b@dp s d] = matmul %12 %5 {sum=[f]}
  out %15
end

func head loss
  formal /loss_sum : f32[] metric
  in %1 : f32[b@dp s d] resid "x"
  in %2 : i32[b@dp s] nograd "targets"
  %3 : f32[] P(dp), %4 : f32[b@dp s d] = mse %1 %2
  accum /loss_sum %3
  out %4
end

func update upd
  formal /weight : f32[n] weight
  formal /grad : f32[n] accum
  %1 : f32[n] F(dp) = read /weight
  %2 : f32[n] F(dp) = read /grad
  %3 : f32[n] F(dp) on %1 +0[1] = sgd %1 %2
  write /weight %3
end

reg input : f32[b@dp s d] io
reg targets : i32[b@dp s] io
reg h1 : f32[b@dp s d]
reg h2 : f32[b@dp s d]
reg dh2 : f32[b@dp s d]
reg dh1 : f32[b@dp s d]
reg dh0 : f32[b@dp s d]

chain fwd fwd (input) -> (h2)
  call block (input) -> (h1) at=layers.0 layer=0
  call block (h1) -> (h2) at=layers.1 layer=1
end

chain bwd bwd (h2 targets) -> ()
  call head (h2 targets) -> (dh2)
  call block.bwd (dh2 _ _) -> (dh1) at=layers.1 layer=1 twin=2
  call block.bwd (dh1 _ _) -> (dh0) at=layers.0 layer=0 twin=1
end

chain upd upd () -> ()
  call update () -> () bind=(flat:weight flat:grad)
end

save block %1 -> block.bwd %2 keep
save block %6 -> block.bwd %3 keep

step 0
  fwd
  bwd
  upd
end
