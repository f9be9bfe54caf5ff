-- core.lua: pointwise arithmetic, sums, and what the compiler itself needs.
-- A block: doc, sig, body (see body.c for the language) or kernel, attrs with defaults, and where it cannot be derived, vjp.

op "add"   { doc = "x + y", sig = "x[..], y[..] -> z[..]", body = "z = x + y", inplace = { "z", "x" } }
op "sub"   { doc = "x - y", sig = "x[..], y[..] -> z[..]", body = "z = x - y", inplace = { "z", "x" } }
op "mul"   { doc = "x * y", sig = "x[..], y[..] -> z[..]", body = "z = x * y", inplace = { "z", "x" } }
op "div"   { doc = "x / y", sig = "x[..], y[..] -> z[..]", body = "z = x / y", inplace = { "z", "x" } }
op "neg"   { doc = "-x", sig = "x[..] -> y[..]", body = "y = -x", inplace = { "y", "x" } }
op "scale" { doc = "x times a constant", sig = "x[..] -> y[..]", attrs = { by = 1.0 }, body = "y = x * by", inplace = { "y", "x" } }
op "shift" { doc = "x plus a constant", sig = "x[..] -> y[..]", attrs = { by = 0.0 }, body = "y = x + by", inplace = { "y", "x" } }
op "recip" { doc = "1 / x", sig = "x[..] -> y[..]", body = "y = 1 / x" }

op "exp"    { doc = "e to the x", sig = "x[..] -> y[..]", body = "y = exp(x)" }
op "log"    { doc = "natural logarithm", sig = "x[..] -> y[..]", body = "y = log(x)" }
op "sqrt"   { doc = "square root", sig = "x[..] -> y[..]", body = "y = sqrt(x)" }
op "rsqrt"  { doc = "1 / square root", sig = "x[..] -> y[..]", body = "y = rsqrt(x)" }
op "square" { doc = "x * x", sig = "x[..] -> y[..]", body = "y = x * x" }
op "tanh"   { doc = "hyperbolic tangent", sig = "x[..] -> y[..]", body = "y = tanh(x)" }
op "sin"    { doc = "sine, x in radians", sig = "x[..] -> y[..]", body = "y = sin(x)" }
op "cos"    { doc = "cosine, x in radians", sig = "x[..] -> y[..]", body = "y = cos(x)" }
op "sigmoid" { doc = "1 / (1 + e^-x)", sig = "x[..] -> y[..]", body = "y = sigmoid(x)" }
op "abs"    { doc = "absolute value; gradient 1 at 0", sig = "x[..] -> y[..]", body = "y = abs(x)" }
op "maximum" { doc = "the larger one", sig = "x[..], y[..] -> z[..]", body = "z = max(x, y)" }
op "minimum" { doc = "the smaller one", sig = "x[..], y[..] -> z[..]", body = "z = min(x, y)" }
op "softcap" {
  doc = "cap * tanh(x / cap): logits that stay within cap", sig = "x[..] -> y[..]", attrs = { cap = "required" },
  body = "y = cap * tanh(x / cap)",
}

op "add_col" { doc = "x + b along the leading dims: a bias", sig = "x[.. d], b[d] -> y[.. d]", body = "y = x + b", inplace = { "y", "x" } }
op "mul_col" { doc = "x * w along the leading dims", sig = "x[.. d], w[d] -> y[.. d]", body = "y = x * w", inplace = { "y", "x" } }
op "add_row" { doc = "x + r, one r a row", sig = "x[.. d], r[..] -> y[.. d]", body = "y = x + r", inplace = { "y", "x" } }
op "mul_row" { doc = "x * r, one r a row", sig = "x[.. d], r[..] -> y[.. d]", body = "y = x * r", inplace = { "y", "x" } }

op "row_sum"  { doc = "sum over the innermost dim", sig = "x[.. d] -> y[..]", body = "y = sum(x, d)" }
op "row_mean" { doc = "mean over the innermost dim", sig = "x[.. d] -> y[..]", body = "y = mean(x, d)" }
op "total"    { doc = "sum of all elements, in a fixed order", sig = "x[..] -> y[]:f32", body = "y = total(x)" }
op "count_if" {
  doc = "how many ids are not negative", sig = "t[..]:i32 -> n[]:f32", nograd = true,
  body = "n = total(where(t >= 0, 1.0, 0.0))",
}
op "stop" { doc = "x, but no gradient flows", sig = "x[..] -> y[..]", nograd = true, body = "y = x" }

op "cast"   { doc = "x in another type: attribute dtype", sig = "x[..] -> y[..]", body = "y = x" } -- its type rule is in sig.c
op "zero"   { doc = "all zeros", sig = "-> y[..]", nograd = true, body = "y = 0.0" }
op "gscale" { doc = "what a unit of summed loss weighs, a run-time scalar", sig = "-> y[]:f32", nograd = true, body = "y = gscale" }
op "at_pos" {
  doc = "the row at the run-time position, one a sequence", sig = "x[b s ..] -> y[b ..]", kernel = "at_pos", nograd = true,
}
