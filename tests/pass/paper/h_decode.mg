; Prefill and decode of the attention layer of program a, tp 2: the same weights, two stateful forms.
;
; Shows: roles prefill and decode; a cache as a Var of kind cache whose life is a request, as long as its
; maximum; an append in place (the result is a window on the variable's value, the write costs nothing);
; decode has one query a row (s.1 = 1), its length and position are values.
;
; test: mutate s/attention_step %7 %13 %15 %2/attention_step %7 %12 %15 %2/ => overwrites %12, which is used later
; test: mutate s/^  write k %13$/  write wk %13/ => variable wk is f32[d g e]
; test: mutate s/ = add %1 %19$/ = add %1 %18/ => the other operands are not
; test: mutate s/^  call block.decode (token pos) -> (h2)/  call block.decode (prompt pos) -> (h2)/ => reg prompt is f32[b s d]
mesh tp=2
op rmsnorm "x[.. d], w[d] -> y[.. d], saved r[..]:f32" kernel
op append "c[b S g e], k[b s g e], pos[b]:i32 -> c2[b S g e]" kernel inplace=c2:c
op attention "q[b s g r e], k[b s g e], v[b s g e], lo[b s]?:i32 -> o[b s g r e], lse[b s g r]:f32" kernel
op attention_step "q[b s g r e], k[b S g e], v[b S g e], pos[b]:i32 -> o[b s g r e]" kernel
op add "x[..], y[..] -> z[..]" kernel linear
dim b = 2
dim s = 8
dim s.1 = 1
dim S = 32
dim d = 16
dim g = 1
dim r = 2
dim e = 4
var layers.0.ln1 : f32[d] weight run saved init=one
var layers.0.wq : f32[d g r@tp e] weight run saved init=normal(0.0,0.02)
var layers.0.wk : f32[d g e] weight run saved init=normal(0.0,0.02)
var layers.0.wv : f32[d g e] weight run saved init=normal(0.0,0.02)
var layers.0.wo : f32[g r@tp e d] weight run saved init=normal(0.0,0.02)
var layers.0.k : f32[b S g e] cache request
var layers.0.v : f32[b S g e] cache request

func block.prefill prefill path=layers.*
  formal ln1 : f32[d] weight
  formal wq : f32[d g r e] weight
  formal wk : f32[d g e] weight
  formal wv : f32[d g e] weight
  formal wo : f32[g r e d] weight
  formal k : f32[b S g e] cache
  formal v : f32[b S g e] cache
  in %1 : f32[b s d] resid "x"
  in %2 : i32[b] nograd "pos"
  %3 : f32[d] = read ln1
  %4 : f32[b s d], %5 : f32[b s] rowstat = rmsnorm %1 %3 {eps=1e-05}
  %6 : f32[d g r@tp e] = read wq
  %7 : f32[b s g r@tp e] = matmul %4 %6 {sum=[d]}
  %8 : f32[d g e] = read wk
  %9 : f32[b s g e] = matmul %4 %8 {sum=[d]}
  %10 : f32[d g e] = read wv
  %11 : f32[b s g e] = matmul %4 %10 {sum=[d]}
  %12 : f32[b S g e] = read k
  %13 : f32[b S g e] on %12 +0[128 4 4 1] = append %12 %9 %2
  write k %13
  %14 : f32[b S g e] = read v
  %15 : f32[b S g e] on %14 +0[128 4 4 1] = append %14 %11 %2
  write v %15
  %16 : f32[b s g r@tp e], %17 : f32[b s g r@tp] = attention %7 %9 %11 {scale=0.5 causal=1}
  %18 : f32[g r@tp e d] = read wo
  %19 : f32[b s d] P(tp) = matmul %16 %18 {sum=[g r e]}
  %20 : f32[b s d] = all_reduce %19 {axis="tp"}
  %21 : f32[b s d] resid = add %1 %20
  out %21
end

func block.decode decode path=layers.*
  formal ln1 : f32[d] weight
  formal wq : f32[d g r e] weight
  formal wk : f32[d g e] weight
  formal wv : f32[d g e] weight
  formal wo : f32[g r e d] weight
  formal k : f32[b S g e] cache
  formal v : f32[b S g e] cache
  in %1 : f32[b s.1 d] resid "x"
  in %2 : i32[b] nograd "pos"
  %3 : f32[d] = read ln1
  %4 : f32[b s.1 d], %5 : f32[b s.1] = rmsnorm %1 %3 {eps=1e-05}
  %6 : f32[d g r@tp e] = read wq
  %7 : f32[b s.1 g r@tp e] = matmul %4 %6 {sum=[d]}
  %8 : f32[d g e] = read wk
  %9 : f32[b s.1 g e] = matmul %4 %8 {sum=[d]}
  %10 : f32[d g e] = read wv
  %11 : f32[b s.1 g e] = matmul %4 %10 {sum=[d]}
  %12 : f32[b S g e] = read k
  %13 : f32[b S g e] on %12 +0[128 4 4 1] = append %12 %9 %2
  write k %13
  %14 : f32[b S g e] = read v
  %15 : f32[b S g e] on %14 +0[128 4 4 1] = append %14 %11 %2
  write v %15
  %16 : f32[b s.1 g r@tp e] = attention_step %7 %13 %15 %2 {scale=0.5}
  %17 : f32[g r@tp e d] = read wo
  %18 : f32[b s.1 d] P(tp) = matmul %16 %17 {sum=[g r e]}
  %19 : f32[b s.1 d] = all_reduce %18 {axis="tp"}
  %20 : f32[b s.1 d] resid = add %1 %19
  out %20
end

reg prompt : f32[b s d] io
reg token : f32[b s.1 d] io
reg pos : i32[b] io
reg h1 : f32[b s d]
reg h2 : f32[b s.1 d]

chain prefill prefill (prompt pos) -> (h1)
  call block.prefill (prompt pos) -> (h1) at=layers.0 layer=0
end

chain decode decode (token pos) -> (h2)
  call block.decode (token pos) -> (h2) at=layers.0 layer=0
end
