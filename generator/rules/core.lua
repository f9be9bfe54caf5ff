-- core.lua: pointwise arithmetic, sums, and what the compiler itself needs.
-- A block: doc, sig, body (see body.c for the language) or kernel, attrs with defaults, and where it cannot be derived, vjp.

op "add"   { doc = "x + y", sig = "x[..], y[..] -> z[..]", body = "z = x + y", inplace = { "z", "x" }, ref = function(x, y) return x + y end }
op "sub"   { doc = "x - y", sig = "x[..], y[..] -> z[..]", body = "z = x - y", inplace = { "z", "x" }, ref = function(x, y) return x - y end }
op "mul"   { doc = "x * y", sig = "x[..], y[..] -> z[..]", body = "z = x * y", inplace = { "z", "x" }, ref = function(x, y) return x * y end }
op "div"   { doc = "x / y", sig = "x[..], y[..] -> z[..]", body = "z = x / y", inplace = { "z", "x" }, ref = function(x, y) return x / y end }
op "neg"   { doc = "-x", sig = "x[..] -> y[..]", body = "y = -x", inplace = { "y", "x" }, ref = function(x) return -x end }
op "scale" { doc = "x times a constant", sig = "x[..] -> y[..]", attrs = { by = 1.0 }, body = "y = x * by", inplace = { "y", "x" },
  ref = function(x, a) return x * a.by end }
op "offset" { doc = "x plus a constant", sig = "x[..] -> y[..]", attrs = { by = 0.0 }, body = "y = x + by", inplace = { "y", "x" },
  ref = function(x, a) return x + a.by end }
op "recip" { doc = "1 / x", sig = "x[..] -> y[..]", body = "y = 1 / x", ref = function(x) return x ^ -1 end }

op "exp"    { doc = "e to the x", sig = "x[..] -> y[..]", body = "y = exp(x)", ref = function(x) return math.exp(x) end }
op "log"    { doc = "natural logarithm", sig = "x[..] -> y[..]", body = "y = log(x)", ref = function(x) return math.log(x) end }
op "sqrt"   { doc = "square root", sig = "x[..] -> y[..]", body = "y = sqrt(x)", ref = function(x) return x ^ 0.5 end }
op "rsqrt"  { doc = "1 / square root", sig = "x[..] -> y[..]", body = "y = rsqrt(x)", ref = function(x) return x ^ -0.5 end }
op "square" { doc = "x * x", sig = "x[..] -> y[..]", body = "y = x * x", ref = function(x) return x ^ 2 end }
op "tanh"   { doc = "hyperbolic tangent", sig = "x[..] -> y[..]", body = "y = tanh(x)", ref = function(x) return tanh(x) end }
op "sin"    { doc = "sine, x in radians", sig = "x[..] -> y[..]", body = "y = sin(x)", ref = function(x) return math.sin(x) end }
op "cos"    { doc = "cosine, x in radians", sig = "x[..] -> y[..]", body = "y = cos(x)", ref = function(x) return math.cos(x) end }
op "sigmoid" { doc = "1 / (1 + e^-x)", sig = "x[..] -> y[..]", body = "y = sigmoid(x)", ref = function(x) return 1 / (1 + math.exp(-x)) end }
op "abs"    { doc = "absolute value; gradient 1 at 0", sig = "x[..] -> y[..]", body = "y = abs(x)", ref = function(x) return math.abs(x) end }
op "maximum" { doc = "the larger one", sig = "x[..], y[..] -> z[..]", body = "z = max(x, y)", ref = function(x, y) return math.max(x, y) end }
op "minimum" { doc = "the smaller one", sig = "x[..], y[..] -> z[..]", body = "z = min(x, y)", ref = function(x, y) return math.min(x, y) end }
op "softcap" {
  doc = "cap * tanh(x / cap): logits that stay within cap", sig = "x[..] -> y[..]", attrs = { cap = "required" },
  body = "y = cap * tanh(x / cap)",
  ref = function(x, a) return a.cap * tanh(x / a.cap) end,
}

op "add_col" { doc = "x + b along the leading dims: a bias", sig = "x[.. d], b[d] -> y[.. d]", body = "y = x + b", inplace = { "y", "x" },
  ref = function(x, b) return each(x, function(v, i) return v + b[i] end) end }
op "mul_col" { doc = "x * w along the leading dims", sig = "x[.. d], w[d] -> y[.. d]", body = "y = x * w", inplace = { "y", "x" },
  ref = function(x, w) return each(x, function(v, i) return v * w[i] end) end }
op "add_row" { doc = "x + r, one r a row", sig = "x[.. d], r[..] -> y[.. d]", body = "y = x + r", inplace = { "y", "x" },
  ref = function(x, r) return each(x, function(v) return v + r end) end }
op "mul_row" { doc = "x * r, one r a row", sig = "x[.. d], r[..] -> y[.. d]", body = "y = x * r", inplace = { "y", "x" },
  ref = function(x, r) return each(x, function(v) return v * r end) end }

op "row_sum"  { doc = "sum over the innermost dim", sig = "x[.. d] -> y[..]", body = "y = sum(x, d)", ref = function(x) return sum(x) end }
op "row_mean" { doc = "mean over the innermost dim", sig = "x[.. d] -> y[..]", body = "y = mean(x, d)", ref = function(x) return sum(x) / #x end }
op "total"    { doc = "sum of all elements, in a fixed order", sig = "x[..] -> y[]:f32", body = "y = total(x)", ref = function(x) return sum(x) end }
op "count_if" {
  doc = "how many ids are not negative", sig = "t[..]:i32 -> n[]:f32", nograd = true,
  body = "n = total(where(t >= 0, 1.0, 0.0))",
  ref = function(t) return sum(each(t, function(v) return v >= 0 and 1 or 0 end)) end,
}
op "stop" { doc = "x, but no gradient flows", sig = "x[..] -> y[..]", nograd = true, body = "y = x", ref = function(x) return x end }

op "cast"   { doc = "x in another type: attribute dtype", sig = "x[..] -> y[..]", body = "y = x", ref = function(x) return x end } -- its type rule is in sig.c
op "zero"   { doc = "all zeros", sig = "-> y[..]", nograd = true, body = "y = 0.0", ref = function() return 0 end }
op "gscale" { doc = "what a unit of summed loss weighs, a run-time scalar", sig = "-> y[]:f32", nograd = true, body = "y = gscale",
  ref = function(a) return a.gscale end }
op "at_pos" {
  doc = "the row at the run-time position, one a sequence", sig = "x[b s ..] -> y[b ..]", kernel = "at_pos", nograd = true, whole = { "s" },
  ref = function(x, a) return each(x, function(row) return row[a.pos + 1] end) end,
}
