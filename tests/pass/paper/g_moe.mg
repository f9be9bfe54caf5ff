; Dropless mixture of experts over ep 2: four experts, two a token, tokens travel to the ranks of their
; experts and back.
;
; Shows: a dynamic dim (n: memory by its maximum, live count in a value); the permuted tokens split by
; origin (n@ep), turned by all_to_all into split by expert (x@ep) and back; a grouped matmul; the router's
; scores whole on every rank; a second loss sum (balance) as a metric of its own.
;
; test: mutate s/axis=.ep. dim=n to=x/axis=\"ep\" dim=n to=d/ => is not the one it names
; test: mutate s/grouped_gate %9 %10/grouped_gate %8 %10/ => split over ep
; test: mutate s/^var layers.0.counts : i32.x. P(ep)/var layers.0.counts : i32[x]/ => differ in placement
; test: mutate s/count moe %7$/count moe %70/ => %70 is not defined in Func moe
mesh ep=2
op router "l[t x] -> gate[t k], id[t k]:i32, count[x]:i32" kernel partial
op balance "l[t x] -> loss[]:f32" kernel partial
op dispatch "h[t d], id[t k]:i32 -> p[x n d]" kernel partial
op combine "p[x n d], gate[t k], id[t k]:i32 -> y[t d]" kernel partial
op grouped_down "a[x n f], w[x f d] -> y[x n d]" kernel
op swiglu "h[.. 2 f] -> y[.. f]" kernel
op grouped_gate "a[x n d], w[x d 2 f] -> y[x n 2 f]" kernel
op add "x[..], y[..] -> z[..]" kernel linear
dim t = 32
dim d = 16
dim x = 4
dim k = 2
dim 2 = 2
dim f = 24
dim n = 64 max 64 count moe %7
var layers.0.router : f32[d x] weight run saved init=normal(0.0,0.02)
var layers.0.wgu : f32[x@ep d 2 f] weight run saved init=normal(0.0,0.02)
var layers.0.wdn : f32[x@ep f d] weight run saved init=normal(0.0,0.02)
var layers.0.counts : i32[x] P(ep) stat step
var balance : f32[] P(ep) metric step

func moe fwd path=layers.*
  formal router : f32[d x] weight
  formal wgu : f32[x d 2 f] weight
  formal wdn : f32[x f d] weight
  formal counts : i32[x] stat
  formal /balance : f32[] metric
  in %1 : f32[t@ep d] resid "x"
  %2 : f32[d x] = read router
  %3 : f32[t@ep x] "scores" = matmul %1 %2 {sum=[d]}
  %4 : f32[] P(ep) = balance %3
  accum /balance %4
  %5 : f32[t@ep k] "gate", %6 : i32[t@ep k] nograd, %7 : i32[x] P(ep) nograd "count" = router %3 {k=k}
  accum counts %7
  %8 : f32[x n@ep d] = dispatch %1 %6 {n=n x=x}
  %9 : f32[x@ep n d] = all_to_all %8 {axis="ep" dim=n to=x}
  %10 : f32[x@ep d 2 f] = read wgu
  %11 : f32[x@ep n 2 f] = grouped_gate %9 %10
  %12 : f32[x@ep n f] = swiglu %11
  %13 : f32[x@ep f d] = read wdn
  %14 : f32[x@ep n d] = grouped_down %12 %13
  %15 : f32[x n@ep d] = all_to_all %14 {axis="ep" dim=x to=n}
  %16 : f32[t@ep d] = combine %15 %5 %6
  %17 : f32[t@ep d] resid = add %1 %16
  out %17
end

reg input : f32[t@ep d] io
reg h1 : f32[t@ep d]

chain fwd fwd (input) -> (h1)
  call moe (input) -> (h1) at=layers.0 layer=0
end

step 0
  fwd
end
