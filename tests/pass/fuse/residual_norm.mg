; A residual step and the norm behind it are one row kernel. Backward, the norm, the sum with the residual's cotangent
; and the column sum of dw are one, too: the recomputed norm, needed by a matmul's gradient, is a result of the same pass.
; test: run fuse..fuse
; test: expect block row 1, map 0
; test: expect block.bwd row 1, map 0
; test: count 1 add_rmsnorm
; test: count 1 dw_lines
; test: hasnt = add %
; test: hasnt = rmsnorm %

config fuse=on
dim b = 2
dim s = 16
dim d = 8
func block fwd
  formal ln.w : f32[d] weight
  in %1 : f32[b s d] resid "x"
  in %2 : f32[b s d] "o"
  %3 : f32[b s d] resid = add %1 %2 path=add
  %4 : f32[d] = read ln.w path=ln
  %5 : f32[b s d], %6 : f32[b s] rowstat = rmsnorm %3 %4 {eps=1e-05} path=ln
  out %3 %5
end
func block.bwd bwd
  formal ln.w : f32[d] weight
  formal ln.w.grad : f32[d] accum
  in %1 : f32[b s d] resid "x"
  in %2 : f32[b s d] "dy"
  in %3 : f32[b s d] "dz"
  %4 : f32[d] = read ln.w path=ln
  %5 : f32[b s d], %6 : f32[b s] rowstat = rmsnorm %1 %4 {eps=1e-05} path=ln
  %7 : f32[b s d], %8 : f32[d] = rmsnorm.bwd %1 %4 %6 %2 {eps=1e-05} path=ln
  accum ln.w.grad %8 beta=0 path=ln
  %9 : f32[b s d] = add %3 %7 path=add
  out %5 %9
end
