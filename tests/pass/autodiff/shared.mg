; One weight in every layer: the calls disagree on who writes first, so the loss clears the accumulator.
; test: run autodiff..autodiff
; test: has accum /w.grad %2 beta=0
; test: count 1 beta=0
; test: has matmul %2 %3 {sum=[b]}
dim b = 4
dim d = 8
dim e = 8
var w : f[d e] weight run saved init=normal(0.0,0.02) group=decay
func block fwd
  formal /w : f[d e] weight
  in %1 : f[b d]
  %2 : f[d e] = read /w
  %3 : f[b e] = matmul %1 %2 {sum=[d]}
  %4 : f[b d] = rename %3 {dim=e to=d}
  out %4
end
func loss fwd
  in %1 : f[b d]
  %2 : f32[] = total %1
  out %2
end
func start fwd
  formal /w : f[d e] weight
  in %1 : i32[b]
  %2 : f[d e] = read /w
  %3 : f[d] = row_sum %2
  %4 : f[b d] = broadcast %3 {dims=[b d]}
  %5 : f[b d] = stop %4
  out %5
end
reg ids : i32[b] io
reg h0 : f[b d]
reg h1 : f[b d]
reg h2 : f[b d]
reg loss_sum : f32[]
chain fwd fwd (ids) -> (loss_sum)
  call start (ids) -> (h0)
  call block (h0) -> (h1) at=a layer=0
  call block (h1) -> (h2) at=b layer=1
  call loss (h2) -> (loss_sum)
end

