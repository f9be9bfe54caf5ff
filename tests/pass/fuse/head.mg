; Loss and its gradient are one row kernel: one read of the logits, one write of dlogits over them. Sums over all rows
; keep an order of their own, so the total is a kernel of its own.
; test: run fuse..fuse
; test: expect chunk row 1, map 2
; test: count 1 cross_entropy_bwd
; test: count 1 total
; test: count 0 copy
; test: has out dx : f32[0 1] mask=3 node=

config fuse=on
dim n = 4
dim v = 20 pad 24
func chunk bwd
  in %1 : f32[n v] "logits"
  in %2 : i32[n]
  %3 : f32[] = gscale
  %4 : f32[n] = cross_entropy %1 %2 {zloss=0.0} path=head
  %5 : f32[] = total %4
  %6 : f32[n] = total.bwd %3 path=head
  %7 : f32[n v] = cross_entropy.bwd %1 %2 %6 {zloss=0.0} path=head
  out %5 %7
end
