; Transposes of views: a gap becomes zeros, overlapping slices are added, a concat is cut, a sum is known inside.
; Evaluation drops nothing: one dropout, one dropout.bwd (counted as a word, too).
; test: run autodiff..autodiff
; test: count 3 zero
; test: has concat
; test: has transpose
; test: count 2 dropout
; test: count 1 dropout.bwd
dim b = 4
dim d = 8
dim h = 4
dim q = 2
dim f = 6
var w : f[b d] weight run saved init=normal(0.0,0.02) group=decay
func start fwd
  formal /w : f[b d] weight
  in %1 : i32[b]
  %2 : f[b d] = read /w
  %3 : f[b h] = slice %2 {dim=d at=0 len=h}
  %4 : f[b h] = slice %2 {dim=d at=2 len=h}
  %5 : f[b h] = mul %3 %4
  %6 : f[b q] = slice %2 {dim=d at=6 len=q}
  %7 : f[b q] = exp %6
  %8 : f[b f] = concat %5 %7 {dim=h to=f}
  %9 : f[f b] = transpose %8 {dims=[f b]}
  %10 : f[f b] = dropout %9 {p=0.5} path="drop"
  out %10
end
func loss fwd
  in %1 : f[f b]
  %2 : f[f b] = square %1
  %3 : f32[] = total %2
  out %3
end
reg ids : i32[b] io
reg h0 : f[f b]
reg loss_sum : f32[]
chain fwd fwd (ids) -> (loss_sum)
  call start (ids) -> (h0)
  call loss (h0) -> (loss_sum)
end

