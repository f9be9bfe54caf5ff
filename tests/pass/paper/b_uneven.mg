; Seven layers on two stages {4, 3}, an hour-glass: layers 0..2 are 64 wide, layer 3 is replaced by one that
; widens to 96, layers 4..6 are 96 wide. Two micro batches.
;
; Shows: a chain is a list of calls, not a trip count; equal bodies share a Func, other widths are other
; dims (d, d.1) and so other Funcs; stages are slices of the list; the residual stream changes its type.
;
; test: mutate s/call wide (h4) -> (h5) at=layers.4 layer=4 stage=1/call block (h4) -> (h5) at=layers.0 layer=4 stage=0/ => reg h4 is f32[b s d.1]
; test: mutate s/^  send h4 to 1 micro=0$// => nobody has the other half
; test: mutate s/ twin=4$/ twin=3/ => its twin 3 runs another Func
; test: mutate s/at=layers.4 layer=4 stage=1$/at=layers.4 layer=4 stage=0/ => does not live on stage 0
; test: mutate s/^dim d.1 = 96/dim d.1 = 64/ => %4 reaches from element 0 to 735
mesh pp=2
op gelu "x[.. f] -> y[.. f]" kernel
op gelu_bwd "x[.. f], dy[.. f] -> dx[.. f]" kernel
op add "x[..], y[..] -> z[..]" kernel linear
op mse "x[b s d], t[b s]:i32 -> loss[]:f32, dx[b s d]" kernel
dim b = 2
dim s = 4
dim d = 64
dim d.1 = 96
dim f = 128
var layers.0.w : f32[d f] weight run saved init=normal(0.0,0.02) stages=0
var layers.0.u : f32[f d] weight run saved init=normal(0.0,0.02) stages=0
var layers.1.w : f32[d f] weight run saved init=normal(0.0,0.02) stages=0
var layers.1.u : f32[f d] weight run saved init=normal(0.0,0.02) stages=0
var layers.2.w : f32[d f] weight run saved init=normal(0.0,0.02) stages=0
var layers.2.u : f32[f d] weight run saved init=normal(0.0,0.02) stages=0
var layers.3.w : f32[d d.1] weight run saved init=normal(0.0,0.02) stages=0
var layers.4.w : f32[d.1 f] weight run saved init=normal(0.0,0.02) stages=1
var layers.4.u : f32[f d.1] weight run saved init=normal(0.0,0.02) stages=1
var layers.5.w : f32[d.1 f] weight run saved init=normal(0.0,0.02) stages=1
var layers.5.u : f32[f d.1] weight run saved init=normal(0.0,0.02) stages=1
var layers.6.w : f32[d.1 f] weight run saved init=normal(0.0,0.02) stages=1
var layers.6.u : f32[f d.1] weight run saved init=normal(0.0,0.02) stages=1
var layers.0.w.grad : f32[d f] accum step of=layers.0.w stages=0
var layers.0.u.grad : f32[f d] accum step of=layers.0.u stages=0
var layers.1.w.grad : f32[d f] accum step of=layers.1.w stages=0
var layers.1.u.grad : f32[f d] accum step of=layers.1.u stages=0
var layers.2.w.grad : f32[d f] accum step of=layers.2.w stages=0
var layers.2.u.grad : f32[f d] accum step of=layers.2.u stages=0
var layers.3.w.grad : f32[d d.1] accum step of=layers.3.w stages=0
var layers.4.w.grad : f32[d.1 f] accum step of=layers.4.w stages=1
var layers.4.u.grad : f32[f d.1] accum step of=layers.4.u stages=1
var layers.5.w.grad : f32[d.1 f] accum step of=layers.5.w stages=1
var layers.5.u.grad : f32[f d.1] accum step of=layers.5.u stages=1
var layers.6.w.grad : f32[d.1 f] accum step of=layers.6.w stages=1
var layers.6.u.grad : f32[f d.1] accum step of=layers.6.u stages=1
var loss_sum : f32[] metric step stages=1

func block fwd path=layers.*
  formal w : f32[d f] weight
  formal u : f32[f d] weight
  in %1 : f32[b s d] resid "x"
  %2 : f32[d f] = read w
  %3 : f32[b s f] "h" = matmul %1 %2 {sum=[d]}
  %4 : f32[b s f] = gelu %3
  %5 : f32[f d] = read u
  %6 : f32[b s d] = matmul %4 %5 {sum=[f]}
  %7 : f32[b s d] resid = add %1 %6
  out %7
end

func block.bwd bwd twin=block path=layers.*
  formal w : f32[d f] weight
  formal u : f32[f d] weight
  formal w.grad : f32[d f] accum
  formal u.grad : f32[f d] accum
  in %1 : f32[b s d] "dy"
  in %2 : f32[b s d] resid "x"
  in %3 : f32[b s f] "h"
  %4 : f32[b s f] = gelu %3
  %5 : f32[f d] = matmul %4 %1 {sum=[b s]}
  accum u.grad %5
  %6 : f32[f d] = read u
  %7 : f32[b s f] = matmul %1 %6 {sum=[d]}
  %8 : f32[b s f] = gelu_bwd %3 %7
  %9 : f32[d f] = matmul %2 %8 {sum=[b s]}
  accum w.grad %9
  %10 : f32[d f] = read w
  %11 : f32[b s d] = matmul %8 %10 {sum=[f]}
  %12 : f32[b s d] = add %1 %11
  out %12
end

func widen fwd path=layers.3
  formal w : f32[d d.1] weight
  in %1 : f32[b s d] resid "x"
  %2 : f32[d d.1] = read w
  %3 : f32[b s d.1] resid = matmul %1 %2 {sum=[d]}
  out %3
end

func widen.bwd bwd twin=widen path=layers.3
  formal w : f32[d d.1] weight
  formal w.grad : f32[d d.1] accum
  in %1 : f32[b s d.1] "dy"
  in %2 : f32[b s d] resid "x"
  %3 : f32[d d.1] = matmul %2 %1 {sum=[b s]}
  accum w.grad %3
  %4 : f32[d d.1] = read w
  %5 : f32[b s d] = matmul %1 %4 {sum=[d.1]}
  out %5
end

func wide fwd path=layers.*
  formal w : f32[d.1 f] weight
  formal u : f32[f d.1] weight
  in %1 : f32[b s d.1] resid "x"
  %2 : f32[d.1 f] = read w
  %3 : f32[b s f] "h" = matmul %1 %2 {sum=[d.1]}
  %4 : f32[b s f] = gelu %3
  %5 : f32[f d.1] = read u
  %6 : f32[b s d.1] = matmul %4 %5 {sum=[f]}
  %7 : f32[b s d.1] resid = add %1 %6
  out %7
end

func wide.bwd bwd twin=wide path=layers.*
  formal w : f32[d.1 f] weight
  formal u : f32[f d.1] weight
  formal w.grad : f32[d.1 f] accum
  formal u.grad : f32[f d.1] accum
  in %1 : f32[b s d.1] "dy"
  in %2 : f32[b s d.1] resid "x"
  in %3 : f32[b s f] "h"
  %4 : f32[b s f] = gelu %3
  %5 : f32[f d.1] = matmul %4 %1 {sum=[b s]}
  accum u.grad %5
  %6 : f32[f d.1] = read u
  %7 : f32[b s f] = matmul %1 %6 {sum=[d.1]}
  %8 : f32[b s f] = gelu_bwd %3 %7
  %9 : f32[d.1 f] = matmul %2 %8 {sum=[b s]}
  accum w.grad %9
  %10 : f32[d.1 f] = read w
  %11 : f32[b s d.1] = matmul %8 %10 {sum=[f]}
  %12 : f32[b s d.1] = add %1 %11
  out %12
end

func head loss
  formal /loss_sum : f32[] metric
  in %1 : f32[b s d.1] resid "x"
  in %2 : i32[b s] nograd "targets"
  %3 : f32[], %4 : f32[b s d.1] on %1 +0[384 96 1] = mse %1 %2
  accum /loss_sum %3
  out %4
end

reg h0 : f32[b s d] io
reg targets : i32[b s] io
reg h1 : f32[b s d]
reg h2 : f32[b s d]
reg h3 : f32[b s d]
reg h4 : f32[b s d.1]
reg h5 : f32[b s d.1]
reg h6 : f32[b s d.1]
reg h7 : f32[b s d.1]
reg d7 : f32[b s d.1]
reg d6 : f32[b s d.1]
reg d5 : f32[b s d.1]
reg d4 : f32[b s d.1]
reg d3 : f32[b s d]
reg d2 : f32[b s d]
reg d1 : f32[b s d]
reg d0 : f32[b s d]

chain fwd fwd (h0) -> (h7)
  call block (h0) -> (h1) at=layers.0 layer=0 stage=0
  call block (h1) -> (h2) at=layers.1 layer=1 stage=0
  call block (h2) -> (h3) at=layers.2 layer=2 stage=0
  call widen (h3) -> (h4) at=layers.3 layer=3 stage=0
  call wide (h4) -> (h5) at=layers.4 layer=4 stage=1
  call wide (h5) -> (h6) at=layers.5 layer=5 stage=1
  call wide (h6) -> (h7) at=layers.6 layer=6 stage=1
end

chain bwd bwd (h7 targets) -> ()
  call head (h7 targets) -> (d7) stage=1
  call wide.bwd (d7 _ _) -> (d6) at=layers.6 layer=6 stage=1 twin=7
  call wide.bwd (d6 _ _) -> (d5) at=layers.5 layer=5 stage=1 twin=6
  call wide.bwd (d5 _ _) -> (d4) at=layers.4 layer=4 stage=1 twin=5
  call widen.bwd (d4 _) -> (d3) at=layers.3 layer=3 stage=0 twin=4
  call block.bwd (d3 _ _) -> (d2) at=layers.2 layer=2 stage=0 twin=3
  call block.bwd (d2 _ _) -> (d1) at=layers.1 layer=1 stage=0 twin=2
  call block.bwd (d1 _ _) -> (d0) at=layers.0 layer=0 stage=0 twin=1
end

save block %1 -> block.bwd %2 keep
save block %3 -> block.bwd %3 keep
save widen %1 -> widen.bwd %2 keep
save wide %1 -> wide.bwd %2 keep
save wide %3 -> wide.bwd %3 keep

step 0
  fwd micro=0
  send h4 to 1 micro=0
  fwd micro=1
  sendrecv h4 to 1 d4 from 1 micro=1 micro2=0
  bwd micro=0
  recv d4 from 1 micro=1
  bwd micro=1
end

step 1
  recv h4 from 0 micro=0
  fwd micro=0
  bwd micro=0
  sendrecv d4 to 0 h4 from 0 micro=0 micro2=1
  fwd micro=1
  bwd micro=1
  send d4 to 0 micro=1
end
