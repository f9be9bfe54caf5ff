; An op without gradient on the way to a weight is refused by name.
; test: run autodiff..autodiff
; test: refused `scan` has no gradient
op scan "x[..] -> y[..]" kernel
dim b = 4
dim d = 8
var w : f[b d] weight run saved init=normal(0.0,0.02) group=decay
func start fwd
  formal /w : f[b d] weight
  in %1 : i32[b]
  %2 : f[b d] = read /w
  %3 : f[b d] = scan %2
  %4 : f32[] = total %3
  out %4
end
reg ids : i32[b] io
reg loss_sum : f32[]
chain fwd fwd (ids) -> (loss_sum)
  call start (ids) -> (loss_sum)
end

