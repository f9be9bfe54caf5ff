; Ring attention: the sequence is cut over cp in zigzag pieces, keys and values go round the ring, packed
; documents (lo: first key position that a query sees).
;
; Shows: s@cp~zigzag; a loop whose carried values are the running maximum, sum and output and the keys and
; values that travel; queries and `lo` are invariant; the first step is the loop's first trip, so that no
; rank needs a special case; buffers of the body apart from those that live across the loop.
;
; test: mutate s/^buf b5 scratch func=attn.ring @1024/buf b5 scratch func=attn.ring @256/ => is live while the loop uses the same bytes
; test: mutate s/^  out %11:carry %12:carry %8:carry/  out %12:carry %8:carry %11:carry/ => outside, f32[b s g
; test: mutate s/in %2 : f32.b s@cp~zigzag g e. .k./in %2 : f32[b s@cp g e] \"k\"/ => dim s is split over cp
; test: mutate s/ring_end %10 %11 %12/ring_end %5 %11 %12/ => overwrites %5, which is used later
mesh cp=2
op ring_start "q[b s g r e] -> m[b s g r]:f32, z[b s g r]:f32, o[b s g r e]" kernel
op ring_step "q[b s g r e], k[b s g e], v[b s g e], lo[b s]:i32, m[b s g r]:f32, z[b s g r]:f32, o[b s g r e] -> m2[b s g r]:f32, z2[b s g r]:f32, o2[b s g r e]" kernel inplace=m2:m inplace=z2:z inplace=o2:o
op ring_end "m[b s g r]:f32, z[b s g r]:f32, o[b s g r e] -> y[b s g r e], lse[b s g r]:f32" kernel inplace=y:o
dim b = 1
dim s = 16
dim g = 2
dim r = 2
dim e = 4
region scratch @0 bytes=8192
region io @8192 bytes=8192
arena 16384
buf b1 scratch func=attn @0 bytes=128 life=0..2
buf b2 scratch func=attn @128 bytes=128 life=0..2
buf b3 scratch func=attn @256 bytes=512 life=0..2
buf b4 scratch func=attn @768 bytes=128 life=2..2
buf b5 scratch func=attn.ring @1024 bytes=256 life=1..2
buf b6 scratch func=attn.ring @1280 bytes=256 life=2..2

func attn.ring loop
  in %1 : f32[b s@cp~zigzag g r e] "q" : invariant
  in %2 : f32[b s@cp~zigzag g e] "k" : carry
  in %3 : f32[b s@cp~zigzag g e] "v" : carry
  in %4 : i32[b s@cp~zigzag] nograd "lo" : invariant
  in %5 : f32[b s@cp~zigzag g r] "m" : carry
  in %6 : f32[b s@cp~zigzag g r] "z" : carry
  in %7 : f32[b s@cp~zigzag g r e] "o" : carry
  %8 : f32[b s@cp~zigzag g r] on %5 +0[64 4 2 1], %9 : f32[b s@cp~zigzag g r] on %6 +0[64 4 2 1], %10 : f32[b s@cp~zigzag g r e] on %7 +0[256 16 8 4 1] = ring_step %1 %2 %3 %4 %5 %6 %7 {scale=0.5}
  %11 : f32[b s@cp~zigzag g e] @b5 = shift %2 {axis="cp" by=1}
  %12 : f32[b s@cp~zigzag g e] @b6 = shift %3 {axis="cp" by=1}
  out %11:carry %12:carry %8:carry %9:carry %10:carry
end

func attn fwd path=attn
  in %1 : f32[b s@cp~zigzag g r e] "q"
  in %2 : f32[b s@cp~zigzag g e] "k"
  in %3 : f32[b s@cp~zigzag g e] "v"
  in %4 : i32[b s@cp~zigzag] nograd "lo"
  %5 : f32[b s@cp~zigzag g r] @b1, %6 : f32[b s@cp~zigzag g r] @b2, %7 : f32[b s@cp~zigzag g r e] @b3 = ring_start %1
  %8 : f32[b s@cp~zigzag g e], %9 : f32[b s@cp~zigzag g e], %10 : f32[b s@cp~zigzag g r] on %5 +0[64 4 2 1], %11 : f32[b s@cp~zigzag g r] on %6 +0[64 4 2 1], %12 : f32[b s@cp~zigzag g r e] on %7 +0[256 16 8 4 1] = loop attn.ring %1 %2 %3 %4 %5 %6 %7 trips=2
  %13 : f32[b s@cp~zigzag g r e] on %7 +0[256 16 8 4 1], %14 : f32[b s@cp~zigzag g r] rowstat @b4 = ring_end %10 %11 %12
  out %13
end

reg q : f32[b s@cp~zigzag g r e] io @8192
reg k : f32[b s@cp~zigzag g e] io @9216
reg v : f32[b s@cp~zigzag g e] io @9728
reg lo : i32[b s@cp~zigzag] io @10240
reg o : f32[b s@cp~zigzag g r e] @10752

chain fwd fwd (q k v lo) -> (o)
  call attn (q k v lo) -> (o) at=attn
end

step 0
  fwd
end
