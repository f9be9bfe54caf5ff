; Two Llama layers on 8 ranks: tp 2 with sequence parallel, pp 2, dp 2 with ZeRO-1, tied embedding, one
; key/value group (so keys and values are whole under tp, queries are split by r), two micro batches.
;
; Shows: placement per atom (s@tp between the matmuls, r@tp and f@tp inside, P(dp) gradients); flat arenas
; F(tp) whose master and moments are F(dp) too; a weight on both stages with a gradient of its own outside
; the arena, P(pp), summed before the update; 1F1B with SENDRECV where a send meets a receive.
;
; test: mutate {s/^  sendrecv h1 to 1 .*/  send h1 to 1 micro=1\n  recv dh1 from 1 micro=0/;s/^  sendrecv dh1 to 0 .*/  send dh1 to 0 micro=0\n  recv h1 from 0 micro=1/} => deadlock: the stages wait for each other
; test: mutate s/^  call tie () -> () stage=1$// => collective 1 of stages 0 and 1
; test: mutate s/ = rmsnorm %19 %20 / = rmsnorm %17 %20 / => must be reduced before an op that is not linear
; test: mutate s/ = matmul %42 %52 / = matmul %43 %52 / => nothing before it is
; test: mutate s/^  %7 : f32\[b@dp s g r@tp e\] = matmul/  %7 : f32[b@dp s g e r@tp] = matmul/ => the op gives f32[b s g r e]
; test: mutate s/^  accum wgu.grad %21$// => nothing is added to variable wgu.grad
; test: mutate s/^  %22 : f32\[d\] P(dp) = all_reduce %21 {axis=.tp.}$/  %22 : f32[d] P(tp) = all_reduce %21 {axis=\"dp\"}/ => differ in placement
mesh dp=2 tp=2 pp=2
axis grid = dp tp pp
op rmsnorm "x[.. d], w[d] -> y[.. d], saved r[..]:f32" kernel
op rmsnorm_bwd "x[.. d], w[d], r[..]:f32, dy[.. d] -> dx[.. d], dw[d]" kernel partial
op attention "q[b s g r e], k[b s g e], v[b s g e], lo[b s]?:i32 -> o[b s g r e], lse[b s g r]:f32" kernel
op attention_bwd "q[b s g r e], k[b s g e], v[b s g e], o[b s g r e], lse[b s g r]:f32, do[b s g r e] -> dq[b s g r e], dk[b s g e], dv[b s g e]" kernel partial
op swiglu "h[.. 2 f] -> y[.. f]" kernel
op swiglu_bwd "h[.. 2 f], dy[.. f] -> dh[.. 2 f]" kernel
op add "x[..], y[..] -> z[..]" kernel linear
op embed "ids[..]:i32, w[v d] -> y[.. d]" kernel partial
op embed_bwd "ids[..]:i32, dy[.. d], w[v d] -> dw[v d]" kernel partial
op ce_max "l[.. v] -> m[..]:f32" kernel partial
op ce_sum "l[.. v], m[..]:f32 -> z[..]:f32" kernel partial
op ce_pick "l[.. v], t[..]:i32 -> p[..]:f32" kernel partial
op ce_loss "m[..]:f32, z[..]:f32, p[..]:f32, t[..]:i32 -> loss[]:f32" kernel partial
op ce_grad "l[.. v], m[..]:f32, z[..]:f32, t[..]:i32 -> dl[.. v]" kernel inplace=dl:l
op sumsq "g[n] -> s[]:f32" kernel partial
op adamw "g[n], w[n], m[n], v[n], s[]:f32 -> w2[n], m2[n], v2[n]" kernel inplace=w2:w inplace=m2:m inplace=v2:v
dim b = 4
dim s = 8
dim d = 16
dim g = 1
dim r = 2
dim e = 4
dim 1 = 1
dim 2 = 2
dim f = 32
dim v = 64
dim n = 3200
flat weight f32 weight elems=3200 F(tp)
flat grad f32 accum elems=3200 P(dp) F(tp)
flat master f32 master elems=3200 F(dp) F(tp)
flat m f32 moment elems=3200 F(dp) F(tp)
flat v f32 moment elems=3200 F(dp) F(tp)
var embed.w : f32[v@tp d] weight run saved init=normal(0.0,0.02) group=decay flat=weight+0 stages=0,1
var embed.w.grad : f32[v@tp d] P(dp) accum step of=embed.w flat=grad+0 stages=0,1
var embed.w.part : f32[v@tp d] P(dp) P(pp) accum step of=embed.w stages=0,1
var layers.0.ln1 : f32[d] weight run saved init=one flat=weight+512 stages=0
var layers.0.wq : f32[d g r@tp e] weight run saved init=normal(0.0,0.02) flat=weight+528 stages=0
var layers.0.wkv : f32[d g 2 e] weight run saved init=normal(0.0,0.02) flat=weight+592 stages=0
var layers.0.wo : f32[g r@tp e d] weight run saved init=normal(0.0,0.02) flat=weight+720 stages=0
var layers.0.ln2 : f32[d] weight run saved init=one flat=weight+784 stages=0
var layers.0.wgu : f32[d 2 f@tp] weight run saved init=normal(0.0,0.02) flat=weight+800 stages=0
var layers.0.wdn : f32[f@tp d] weight run saved init=normal(0.0,0.02) flat=weight+1312 stages=0
var layers.0.ln1.grad : f32[d] P(dp) accum step of=layers.0.ln1 flat=grad+512 stages=0
var layers.0.wq.grad : f32[d g r@tp e] P(dp) accum step of=layers.0.wq flat=grad+528 stages=0
var layers.0.wkv.grad : f32[d g 2 e] P(dp) accum step of=layers.0.wkv flat=grad+592 stages=0
var layers.0.wo.grad : f32[g r@tp e d] P(dp) accum step of=layers.0.wo flat=grad+720 stages=0
var layers.0.ln2.grad : f32[d] P(dp) accum step of=layers.0.ln2 flat=grad+784 stages=0
var layers.0.wgu.grad : f32[d 2 f@tp] P(dp) accum step of=layers.0.wgu flat=grad+800 stages=0
var layers.0.wdn.grad : f32[f@tp d] P(dp) accum step of=layers.0.wdn flat=grad+1312 stages=0
var layers.1.ln1 : f32[d] weight run saved init=one flat=weight+512 stages=1
var layers.1.wq : f32[d g r@tp e] weight run saved init=normal(0.0,0.02) flat=weight+528 stages=1
var layers.1.wkv : f32[d g 2 e] weight run saved init=normal(0.0,0.02) flat=weight+592 stages=1
var layers.1.wo : f32[g r@tp e d] weight run saved init=normal(0.0,0.02) flat=weight+720 stages=1
var layers.1.ln2 : f32[d] weight run saved init=one flat=weight+784 stages=1
var layers.1.wgu : f32[d 2 f@tp] weight run saved init=normal(0.0,0.02) flat=weight+800 stages=1
var layers.1.wdn : f32[f@tp d] weight run saved init=normal(0.0,0.02) flat=weight+1312 stages=1
var layers.1.ln1.grad : f32[d] P(dp) accum step of=layers.1.ln1 flat=grad+512 stages=1
var layers.1.wq.grad : f32[d g r@tp e] P(dp) accum step of=layers.1.wq flat=grad+528 stages=1
var layers.1.wkv.grad : f32[d g 2 e] P(dp) accum step of=layers.1.wkv flat=grad+592 stages=1
var layers.1.wo.grad : f32[g r@tp e d] P(dp) accum step of=layers.1.wo flat=grad+720 stages=1
var layers.1.ln2.grad : f32[d] P(dp) accum step of=layers.1.ln2 flat=grad+784 stages=1
var layers.1.wgu.grad : f32[d 2 f@tp] P(dp) accum step of=layers.1.wgu flat=grad+800 stages=1
var layers.1.wdn.grad : f32[f@tp d] P(dp) accum step of=layers.1.wdn flat=grad+1312 stages=1
var ln_f : f32[d] weight run saved init=one flat=weight+1568 stages=1
var ln_f.grad : f32[d] P(dp) accum step of=ln_f flat=grad+1568 stages=1
var loss_sum : f32[] P(dp) metric step stages=1

func embed fwd path=embed
  formal /embed.w : f32[v d] weight
  in %1 : i32[b@dp s] nograd "tokens"
  %2 : f32[v@tp d] = read /embed.w
  %3 : f32[b@dp s d] P(tp) = embed %1 %2
  %4 : f32[b@dp s@tp d] resid = reduce_scatter %3 {axis="tp" dim=s}
  out %4
end

func block fwd path=layers.*
  formal ln1 : f32[d] weight
  formal wq : f32[d g r e] weight
  formal wkv : f32[d g 2 e] weight
  formal wo : f32[g r e d] weight
  formal ln2 : f32[d] weight
  formal wgu : f32[d 2 f] weight
  formal wdn : f32[f d] weight
  in %1 : f32[b@dp s@tp d] resid "x"
  %2 : f32[d] = read ln1
  %3 : f32[b@dp s@tp d], %4 : f32[b@dp s@tp] rowstat = rmsnorm %1 %2 {eps=1e-05}
  %5 : f32[b@dp s d] = all_gather %3 {axis="tp" dim=s}
  %6 : f32[d g r@tp e] = read wq
  %7 : f32[b@dp s g r@tp e] = matmul %5 %6 {sum=[d]}
  %8 : f32[d g 2 e] = read wkv
  %9 : f32[b@dp s g 2 e] = matmul %5 %8 {sum=[d]}
  %10 : f32[b@dp s g 1 e] on %9 +0[64 8 8 4 1] = slice %9 {dim=#2 at=0 len=#1}
  %11 : f32[b@dp s g e] on %9 +0[64 8 8 1] "k" = merge %10 {dims=[1 e] dim=e}
  %12 : f32[b@dp s g 1 e] on %9 +4[64 8 8 4 1] = slice %9 {dim=#2 at=1 len=#1}
  %13 : f32[b@dp s g e] on %9 +4[64 8 8 1] "v" = merge %12 {dims=[1 e] dim=e}
  %14 : f32[b@dp s g r@tp e], %15 : f32[b@dp s g r@tp] rowstat = attention %7 %11 %13 {scale=0.5 causal=1}
  %16 : f32[g r@tp e d] = read wo
  %17 : f32[b@dp s d] P(tp) = matmul %14 %16 {sum=[g r e]}
  %18 : f32[b@dp s@tp d] = reduce_scatter %17 {axis="tp" dim=s}
  %19 : f32[b@dp s@tp d] resid = add %1 %18
  %20 : f32[d] = read ln2
  %21 : f32[b@dp s@tp d], %22 : f32[b@dp s@tp] rowstat = rmsnorm %19 %20 {eps=1e-05}
  %23 : f32[b@dp s d] = all_gather %21 {axis="tp" dim=s}
  %24 : f32[d 2 f@tp] = read wgu
  %25 : f32[b@dp s 2 f@tp] = matmul %23 %24 {sum=[d]}
  %26 : f32[b@dp s f@tp] = swiglu %25
  %27 : f32[f@tp d] = read wdn
  %28 : f32[b@dp s d] P(tp) = matmul %26 %27 {sum=[f]}
  %29 : f32[b@dp s@tp d] = reduce_scatter %28 {axis="tp" dim=s}
  %30 : f32[b@dp s@tp d] resid = add %19 %29
  out %30
end

; Value and gradient in one Func; the vocabulary is split over tp, so maximum and sums are reduced over it.
func head loss path=head
  formal ln_f : f32[d] weight
  formal ln_f.grad : f32[d] accum
  formal /embed.w : f32[v d] weight
  formal /embed.w.part : f32[v d] accum
  formal /loss_sum : f32[] metric
  in %1 : f32[b@dp s@tp d] resid "x"
  in %2 : i32[b@dp s] nograd "targets"
  %3 : f32[d] = read ln_f
  %4 : f32[b@dp s@tp d], %5 : f32[b@dp s@tp] rowstat = rmsnorm %1 %3 {eps=1e-05}
  %6 : f32[b@dp s d] = all_gather %4 {axis="tp" dim=s}
  %7 : f32[v@tp d] = read /embed.w
  %8 : f32[b@dp s v@tp] "logits" = matmul %6 %7 {sum=[d]}
  %9 : f32[b@dp s] M(tp) = ce_max %8
  %10 : f32[b@dp s] = all_reduce %9 {axis="tp"}
  %11 : f32[b@dp s] P(tp) = ce_sum %8 %10
  %12 : f32[b@dp s] = all_reduce %11 {axis="tp"}
  %13 : f32[b@dp s] P(tp) = ce_pick %8 %2
  %14 : f32[b@dp s] = all_reduce %13 {axis="tp"}
  %15 : f32[] P(dp) = ce_loss %10 %12 %14 %2
  accum /loss_sum %15
  %16 : f32[b@dp s v@tp] on %8 +0[512 64 1] "dlogits" = ce_grad %8 %10 %12 %2
  %17 : f32[v@tp d] P(dp) = matmul %16 %6 {sum=[b s]}
  accum /embed.w.part %17
  %18 : f32[b@dp s d] P(tp) = matmul %16 %7 {sum=[v]}
  %19 : f32[b@dp s@tp d] = reduce_scatter %18 {axis="tp" dim=s}
  %20 : f32[b@dp s@tp d], %21 : f32[d] P(dp) P(tp) = rmsnorm_bwd %1 %3 %5 %19
  %22 : f32[d] P(dp) = all_reduce %21 {axis="tp"}
  accum ln_f.grad %22
  out %20
end

func block.bwd bwd twin=block path=layers.*
  formal ln1 : f32[d] weight
  formal wq : f32[d g r e] weight
  formal wkv : f32[d g 2 e] weight
  formal wo : f32[g r e d] weight
  formal ln2 : f32[d] weight
  formal wgu : f32[d 2 f] weight
  formal wdn : f32[f d] weight
  formal ln1.grad : f32[d] accum
  formal wq.grad : f32[d g r e] accum
  formal wkv.grad : f32[d g 2 e] accum
  formal wo.grad : f32[g r e d] accum
  formal ln2.grad : f32[d] accum
  formal wgu.grad : f32[d 2 f] accum
  formal wdn.grad : f32[f d] accum
  in %1 : f32[b@dp s@tp d] "dy"
  in %2 : f32[b@dp s@tp d] resid "x"
  in %3 : f32[b@dp s@tp] rowstat
  in %4 : f32[b@dp s g r@tp e] "q"
  in %5 : f32[b@dp s g 2 e] "kv"
  in %6 : f32[b@dp s g r@tp e] "o"
  in %7 : f32[b@dp s g r@tp] rowstat "lse"
  in %8 : f32[b@dp s@tp d] resid "x1"
  in %9 : f32[b@dp s@tp] rowstat
  in %10 : f32[b@dp s 2 f@tp] "h"
  %11 : f32[b@dp s d] = all_gather %1 {axis="tp" dim=s}
  %12 : f32[b@dp s f@tp] = swiglu %10
  %13 : f32[f@tp d] P(dp) = matmul %12 %11 {sum=[b s]}
  accum wdn.grad %13
  %14 : f32[f@tp d] = read wdn
  %15 : f32[b@dp s f@tp] = matmul %11 %14 {sum=[d]}
  %16 : f32[b@dp s 2 f@tp] = swiglu_bwd %10 %15
  %17 : f32[d] = read ln2
  %18 : f32[b@dp s@tp d], %19 : f32[b@dp s@tp] = rmsnorm %8 %17 {eps=1e-05}
  %20 : f32[b@dp s d] = all_gather %18 {axis="tp" dim=s}
  %21 : f32[d 2 f@tp] P(dp) = matmul %20 %16 {sum=[b s]}
  accum wgu.grad %21
  %22 : f32[d 2 f@tp] = read wgu
  %23 : f32[b@dp s d] P(tp) = matmul %16 %22 {sum=[2 f]}
  %24 : f32[b@dp s@tp d] = reduce_scatter %23 {axis="tp" dim=s}
  %25 : f32[b@dp s@tp d], %26 : f32[d] P(dp) P(tp) = rmsnorm_bwd %8 %17 %9 %24
  %27 : f32[d] P(dp) = all_reduce %26 {axis="tp"}
  accum ln2.grad %27
  %28 : f32[b@dp s@tp d] = add %1 %25
  %29 : f32[b@dp s d] = all_gather %28 {axis="tp" dim=s}
  %30 : f32[g r@tp e d] P(dp) = matmul %6 %29 {sum=[b s]}
  accum wo.grad %30
  %31 : f32[g r@tp e d] = read wo
  %32 : f32[b@dp s g r@tp e] = matmul %29 %31 {sum=[d]}
  %33 : f32[b@dp s g 1 e] on %5 +0[64 8 8 4 1] = slice %5 {dim=#2 at=0 len=#1}
  %34 : f32[b@dp s g e] on %5 +0[64 8 8 1] = merge %33 {dims=[1 e] dim=e}
  %35 : f32[b@dp s g 1 e] on %5 +4[64 8 8 4 1] = slice %5 {dim=#2 at=1 len=#1}
  %36 : f32[b@dp s g e] on %5 +4[64 8 8 1] = merge %35 {dims=[1 e] dim=e}
  %37 : f32[b@dp s g r@tp e], %38 : f32[b@dp s g e] P(tp) on %42 +0[64 8 8 1], %39 : f32[b@dp s g e] P(tp) on %42 +4[64 8 8 1] = attention_bwd %4 %34 %36 %6 %7 %32 {scale=0.5 causal=1}
  %40 : f32[b@dp s g 1 e] P(tp) on %42 +0[64 8 8 4 1] = split %38 {dim=e dims=[1 e]}
  %41 : f32[b@dp s g 1 e] P(tp) on %42 +4[64 8 8 4 1] = split %39 {dim=e dims=[1 e]}
  %42 : f32[b@dp s g 2 e] P(tp) = concat %40 %41 {dim=#1 to=#2}
  %43 : f32[b@dp s g 2 e] = all_reduce %42 {axis="tp"}
  %44 : f32[d] = read ln1
  %45 : f32[b@dp s@tp d], %46 : f32[b@dp s@tp] = rmsnorm %2 %44 {eps=1e-05}
  %47 : f32[b@dp s d] = all_gather %45 {axis="tp" dim=s}
  %48 : f32[d g 2 e] P(dp) = matmul %47 %43 {sum=[b s]}
  accum wkv.grad %48
  %49 : f32[d g r@tp e] P(dp) = matmul %47 %37 {sum=[b s]}
  accum wq.grad %49
  %50 : f32[d g r@tp e] = read wq
  %51 : f32[b@dp s d] P(tp) = matmul %37 %50 {sum=[g r e]}
  %52 : f32[d g 2 e] = read wkv
  %53 : f32[b@dp s d] P(tp) = matmul %42 %52 {sum=[g 2 e]}
  %54 : f32[b@dp s d] P(tp) = add %51 %53
  %55 : f32[b@dp s@tp d] = reduce_scatter %54 {axis="tp" dim=s}
  %56 : f32[b@dp s@tp d], %57 : f32[d] P(dp) P(tp) = rmsnorm_bwd %2 %44 %3 %55
  %58 : f32[d] P(dp) = all_reduce %57 {axis="tp"}
  accum ln1.grad %58
  %59 : f32[b@dp s@tp d] = add %28 %56
  out %59
end

func embed.bwd bwd twin=embed path=embed
  formal /embed.w : f32[v d] weight
  formal /embed.w.part : f32[v d] accum
  in %1 : f32[b@dp s@tp d] "dy"
  in %2 : i32[b@dp s] nograd "tokens"
  %3 : f32[v@tp d] = read /embed.w
  %4 : f32[b@dp s d] = all_gather %1 {axis="tp" dim=s}
  %5 : f32[v@tp d] P(dp) = embed_bwd %2 %4 %3
  accum /embed.w.part %5
end

; The two stages add their parts of the tied gradient, then each has it in its arena.
func tie upd
  formal /embed.w.part : f32[v d] accum
  formal /embed.w.grad : f32[v d] accum
  %1 : f32[v@tp d] P(dp) P(pp) = read /embed.w.part
  %2 : f32[v@tp d] P(dp) = all_reduce %1 {axis="pp"}
  write /embed.w.grad %2
end

func update upd
  formal /weight : f32[n] weight
  formal /grad : f32[n] accum
  formal /master : f32[n] master
  formal /m : f32[n] moment
  formal /v : f32[n] moment
  %1 : f32[n] P(dp) F(tp) = read /grad
  %2 : f32[n] F(dp) F(tp) = reduce_scatter %1 {axis="dp"}
  %3 : f32[] P(dp) P(tp) P(pp) = sumsq %2
  %4 : f32[] "gnorm2" = all_reduce %3 {axis="grid"}
  %5 : f32[n] F(dp) F(tp) = read /master
  %6 : f32[n] F(dp) F(tp) = read /m
  %7 : f32[n] F(dp) F(tp) = read /v
  %8 : f32[n] F(dp) F(tp) on %5 +0[1], %9 : f32[n] F(dp) F(tp) on %6 +0[1], %10 : f32[n] F(dp) F(tp) on %7 +0[1] = adamw %2 %5 %6 %7 %4 {beta1=0.9 beta2=0.95}
  write /master %8
  write /m %9
  write /v %10
  %11 : f32[n] F(tp) = all_gather %8 {axis="dp"}
  write /weight %11
end

reg tokens : i32[b@dp s] io
reg targets : i32[b@dp s] io
reg h0 : f32[b@dp s@tp d] saved
reg h1 : f32[b@dp s@tp d] saved
reg h2 : f32[b@dp s@tp d] saved
reg dh2 : f32[b@dp s@tp d]
reg dh1 : f32[b@dp s@tp d]
reg dh0 : f32[b@dp s@tp d]

chain fwd fwd (tokens) -> (h2)
  call embed (tokens) -> (h0) at=embed stage=0
  call block (h0) -> (h1) at=layers.0 layer=0 stage=0
  call block (h1) -> (h2) at=layers.1 layer=1 stage=1
end

chain bwd bwd (h2 tokens targets) -> ()
  call head (h2 targets) -> (dh2) stage=1
  call block.bwd (dh2 _ _ _ _ _ _ _ _ _) -> (dh1) at=layers.1 layer=1 stage=1 twin=3
  call block.bwd (dh1 _ _ _ _ _ _ _ _ _) -> (dh0) at=layers.0 layer=0 stage=0 twin=2
  call embed.bwd (dh0 tokens) -> () at=embed stage=0 twin=1
end

chain upd upd () -> ()
  call tie () -> () stage=0
  call tie () -> () stage=1
  call update () -> () stage=0 bind=(flat:weight flat:grad flat:master flat:m flat:v)
  call update () -> () stage=1 bind=(flat:weight flat:grad flat:master flat:m flat:v)
end

save block %1 -> block.bwd %2 keep
save block %4 -> block.bwd %3 keep
save block %7 -> block.bwd %4 keep
save block %9 -> block.bwd %5 keep
save block %14 -> block.bwd %6 keep
save block %15 -> block.bwd %7 keep
save block %19 -> block.bwd %8 keep
save block %22 -> block.bwd %9 keep
save block %25 -> block.bwd %10 keep

step 0
  fwd micro=0
  send h1 to 1 micro=0
  fwd micro=1
  sendrecv h1 to 1 dh1 from 1 micro=1 micro2=0
  bwd micro=0
  recv dh1 from 1 micro=1
  bwd micro=1
  upd
end

step 1
  recv h1 from 0 micro=0
  fwd micro=0
  bwd micro=0
  sendrecv dh1 to 0 h1 from 0 micro=0 micro2=1
  fwd micro=1
  bwd micro=1
  send dh1 to 0 micro=1
  upd
end
