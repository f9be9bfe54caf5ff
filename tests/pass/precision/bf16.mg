; bf16 weights have an f32 master; gradients and statistics stay f32; weight gradients are rounded once.
; test: run autodiff..precision
; test: has flat master f32 master elems=1792
; test: has var layers.0.mlp.wo : bf16[f d] weight
; test: has var layers.0.mlp.wo.master : f32[f d] master run saved
; test: has write /master %9
; test: has cast %9 {dtype="bf16"}
; test: has : f32[f d] "dwo" = matmul
; test: has : bf16[b s f] "dact" = matmul
; test: has %4 : bf16[b s d], %5 : f32[b s] rowstat = rmsnorm
; test: hasnt : f[
config compute=bf16

dim b = 2
dim s = 16
dim d = 8
dim g = 2
dim r = 2
dim q = 4
dim e = 4
dim h = 2
dim f = 12
dim two = 2
dim one = 1
dim v = 20 pad 24
dim t = 32
dim c = 4
dim n = 8
var embed.w : f[v d] weight run saved init=normal(0,0.02) group=decay
var rope.cos : f32[s h] table run
var rope.sin : f32[s h] table run
var layers.0.ln.w : f[d] weight run saved init=one group=plain
var layers.0.attn.wqkv : f[d g q e] weight run saved init=normal(0,0.02) group=decay
var layers.0.attn.wo : f[g r e d] weight run saved init=normal(0,0.02) group=decay
var layers.0.mlp.w : f[d two f] weight run saved init=normal(0,0.02) group=decay
var layers.0.mlp.wo : f[f d] weight run saved init=normal(0,0.02) group=decay
var layers.1.ln.w : f[d] weight run saved init=one group=plain
var layers.1.attn.wqkv : f[d g q e] weight run saved init=normal(0,0.02) group=decay
var layers.1.attn.wo : f[g r e d] weight run saved init=normal(0,0.02) group=decay
var layers.1.mlp.w : f[d two f] weight run saved init=normal(0,0.02) group=decay
var layers.1.mlp.wo : f[f d] weight run saved init=normal(0,0.02) group=decay
var norm.w : f[d] weight run saved init=one group=plain
func embed fwd path=embed
  formal w : f[v d] weight
  in %1 : i32[b s]
  %2 : f[v d] = read w
  %3 : f[b s d] resid = embed %1 %2
  out %3
end
func block fwd path=layers.*
  formal ln.w : f[d] weight
  formal attn.wqkv : f[d g q e] weight
  formal attn.wo : f[g r e d] weight
  formal mlp.w : f[d two f] weight
  formal mlp.wo : f[f d] weight
  formal /rope.cos : f32[s h] table
  formal /rope.sin : f32[s h] table
  in %1 : f[b s d] resid "x"
  %2 : f[d] = read ln.w
  %3 : f[b s d], %4 : f32[b s] rowstat = rmsnorm %1 %2 {eps=1e-05} path="ln"
  %5 : f[d g q e] = read attn.wqkv
  %6 : f[b s g q e] = matmul %3 %5 {sum=[d]} path="attn.qkv"
  %7 : f[b s g r e] = slice %6 {dim=q at=0 len=r}
  %8 : f[b s g one e] = slice %6 {dim=q at=2 len=one}
  %9 : f[b s g e] = merge %8 {dims=[g one] dim=g}
  %10 : f[b s g one e] = slice %6 {dim=q at=3 len=one}
  %11 : f[b s g e] = merge %10 {dims=[g one] dim=g}
  %12 : f32[s h] = read /rope.cos
  %13 : f32[s h] = read /rope.sin
  %14 : f[b s g r h] = slice %7 {dim=e at=0 len=h}
  %15 : f[b s g r h] = slice %7 {dim=e at=2 len=h}
  %16 : f[b s g r h], %17 : f[b s g r h] = rope %14 %15 %12 %13 path="attn.rope"
  %18 : f[b s g r e] = concat %16 %17 {dim=h to=e}
  %20 : f[b s g h] = slice %9 {dim=e at=0 len=h}
  %21 : f[b s g h] = slice %9 {dim=e at=2 len=h}
  %22 : f[b s g h], %23 : f[b s g h] = rope %20 %21 %12 %13 path="attn.rope"
  %24 : f[b s g e] = concat %22 %23 {dim=h to=e}
  %25 : f[b s g r e], %26 : f32[b s g r] = attention %18 %24 %11 {scale=0.5 window=0 softcap=0.0 causal=1} path="attn"
  %27 : f[g r e d] = read attn.wo
  %28 : f[b s d] = matmul %25 %27 {sum=[g r e]} path="attn.wo"
  %29 : f[b s d] resid = add %1 %28
  %30 : f[d two f] = read mlp.w
  %31 : f[b s two f] = matmul %29 %30 {sum=[d]} path="mlp.up"
  %32 : f[b s one f] = slice %31 {dim=two at=0 len=one}
  %33 : f[b s f] = merge %32 {dims=[s one] dim=s}
  %34 : f[b s one f] = slice %31 {dim=two at=1 len=one}
  %35 : f[b s f] = merge %34 {dims=[s one] dim=s}
  %36 : f[b s f] = swiglu %33 %35 path="mlp.act"
  %37 : f[f d] = read mlp.wo
  %38 : f[b s d] = matmul %36 %37 {sum=[f]} path="mlp.down"
  %39 : f[b s d] resid = add %29 %38
  out %39
end
func head.chunk loop
  in %1 : f[n d] : slice
  in %2 : i32[n] : slice
  in %3 : f[v d] : invariant
  %4 : f[n v] = matmul %1 %3 {sum=[d]} path="head"
  %5 : f32[n] = cross_entropy %4 %2 {zloss=0.0} path="head.loss"
  %6 : f32[] = total %5
  %7 : f32[] = count_if %2
  out %6:sum %7:sum
end
func head fwd path=head
  formal /norm.w : f[d] weight
  formal /embed.w : f[v d] weight
  in %1 : f[b s d] resid "x"
  in %2 : i32[b s]
  %3 : f[d] = read /norm.w
  %4 : f[b s d], %5 : f32[b s] rowstat = rmsnorm %1 %3 {eps=1e-05} path="norm"
  %6 : f[v d] = read /embed.w
  %7 : f[t d] = merge %4 {dims=[b s] dim=t}
  %8 : f[c n d] = split %7 {dim=t dims=[c n]}
  %9 : i32[t] = merge %2 {dims=[b s] dim=t}
  %10 : i32[c n] = split %9 {dim=t dims=[c n]}
  %11 : f32[], %12 : f32[] = loop head.chunk %8 %10 %6 trips=4
  out %11 %12
end
reg tokens : i32[b s] io
reg targets : i32[b s] io
reg h0 : f[b s d]
reg h1 : f[b s d]
reg h2 : f[b s d]
reg loss_sum : f32[]
reg count : f32[]
chain fwd fwd (tokens targets) -> (loss_sum count)
  call embed (tokens) -> (h0) at=embed
  call block (h0) -> (h1) at=layers.0 layer=0
  call block (h1) -> (h2) at=layers.1 layer=1
  call head (h2 targets) -> (loss_sum count)
end
