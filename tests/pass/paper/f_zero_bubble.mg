; Zero-bubble pipeline, pp 2, three micro batches: the backward of a layer is two Funcs, one for the input's
; gradient (on the critical path) and one for the weights' (fills the bubble).
;
; Shows: role bwdw; saves between three Funcs (fwd -> bwd, fwd -> bwdw, bwd -> bwdw); commands of three
; kinds in one list; a WAIT and SIGNAL between the compute lane and a second lane that sends.
;
; test: mutate s/^  bwdw micro=2$// => bwdw of micro batch 2 never runs
; test: mutate s/^  signal 2$// => stage 0 waits for event 2
; test: mutate s/^save block.bwd %5 -> block.bwdw %4 keep$// => comes from no reg and no save
; test: mutate s/^  recv dh1 from 1 micro=1$/  recv dh1 from 1 micro=2/ => nobody has the other half
mesh pp=2
op gelu "x[.. f] -> y[.. f]" kernel
op gelu_bwd "x[.. f], dy[.. f] -> dx[.. f]" kernel
op mse "x[b s d], t[b s]:i32 -> loss[]:f32, dx[b s d]" kernel
dim b = 2
dim s = 4
dim d = 8
dim f = 8
var layers.0.w : f32[d f] weight run saved init=normal(0.0,0.02) stages=0
var layers.0.u : f32[f d] weight run saved init=normal(0.0,0.02) stages=0
var layers.1.w : f32[d f] weight run saved init=normal(0.0,0.02) stages=1
var layers.1.u : f32[f d] weight run saved init=normal(0.0,0.02) stages=1
var layers.0.w.grad : f32[d f] accum step of=layers.0.w stages=0
var layers.0.u.grad : f32[f d] accum step of=layers.0.u stages=0
var layers.1.w.grad : f32[d f] accum step of=layers.1.w stages=1
var layers.1.u.grad : f32[f d] accum step of=layers.1.u stages=1
var loss_sum : f32[] metric step stages=1

func block fwd path=layers.*
  formal w : f32[d f] weight
  formal u : f32[f d] weight
  in %1 : f32[b s d] resid "x"
  %2 : f32[d f] = read w
  %3 : f32[b s f] "h" = matmul %1 %2 {sum=[d]}
  %4 : f32[b s f] = gelu %3
  %5 : f32[f d] = read u
  %6 : f32[b s d] resid = matmul %4 %5 {sum=[f]}
  out %6
end

func block.bwd bwd twin=block path=layers.*
  formal w : f32[d f] weight
  formal u : f32[f d] weight
  in %1 : f32[b s d] "dy"
  in %2 : f32[b s f] "h"
  %3 : f32[f d] = read u
  %4 : f32[b s f] = matmul %1 %3 {sum=[d]}
  %5 : f32[b s f] "dh" = gelu_bwd %2 %4
  %6 : f32[d f] = read w
  %7 : f32[b s d] = matmul %5 %6 {sum=[f]}
  out %7
end

func block.bwdw bwdw twin=block path=layers.*
  formal w.grad : f32[d f] accum
  formal u.grad : f32[f d] accum
  in %1 : f32[b s d] "x"
  in %2 : f32[b s f] "h"
  in %3 : f32[b s d] "dy"
  in %4 : f32[b s f] "dh"
  %5 : f32[b s f] = gelu %2
  %6 : f32[f d] = matmul %5 %3 {sum=[b s]}
  accum u.grad %6
  %7 : f32[d f] = matmul %1 %4 {sum=[b s]}
  accum w.grad %7
end

func head loss
  formal /loss_sum : f32[] metric
  in %1 : f32[b s d] resid "x"
  in %2 : i32[b s] nograd "targets"
  %3 : f32[], %4 : f32[b s d] = mse %1 %2
  accum /loss_sum %3
  out %4
end

reg input : f32[b s d] io
reg targets : i32[b s] io
reg h1 : f32[b s d] saved
reg h2 : f32[b s d] saved
reg dh2 : f32[b s d]
reg dh1 : f32[b s d]
reg dh0 : f32[b s d]

chain fwd fwd (input) -> (h2)
  call block (input) -> (h1) at=layers.0 layer=0 stage=0
  call block (h1) -> (h2) at=layers.1 layer=1 stage=1
end

chain bwd bwd (h2 targets) -> ()
  call head (h2 targets) -> (dh2) stage=1
  call block.bwd (dh2 _) -> (dh1) at=layers.1 layer=1 stage=1 twin=2
  call block.bwd (dh1 _) -> (dh0) at=layers.0 layer=0 stage=0 twin=1
end

chain bwdw bwdw () -> ()
  call block.bwdw (_ _ _ _) -> () at=layers.1 layer=1 stage=1 twin=2
  call block.bwdw (_ _ _ _) -> () at=layers.0 layer=0 stage=0 twin=1
end

save block %3 -> block.bwd %2 keep
save block %1 -> block.bwdw %1 keep
save block %3 -> block.bwdw %2 keep
save block.bwd %1 -> block.bwdw %3 keep
save block.bwd %5 -> block.bwdw %4 keep

step 0
  fwd micro=0
  signal 1
  wait 1 lane=1
  send h1 to 1 micro=0 lane=1
  fwd micro=1
  signal 2
  wait 2 lane=1
  send h1 to 1 micro=1 lane=1
  fwd micro=2
  signal 3
  wait 3 lane=1
  send h1 to 1 micro=2 lane=1
  recv dh1 from 1 micro=0
  bwd micro=0
  bwdw micro=0
  recv dh1 from 1 micro=1
  bwd micro=1
  bwdw micro=1
  recv dh1 from 1 micro=2
  bwd micro=2
  bwdw micro=2
end

step 1
  recv h1 from 0 micro=0
  fwd micro=0
  bwd micro=0
  send dh1 to 0 micro=0
  recv h1 from 0 micro=1
  fwd micro=1
  bwd micro=1
  send dh1 to 0 micro=1
  bwdw micro=0
  recv h1 from 0 micro=2
  fwd micro=2
  bwd micro=2
  send dh1 to 0 micro=2
  bwdw micro=1
  bwdw micro=2
end
