-- optim.lua: gradient norm, clipping and optimizers, over flat arenas of n elements.
-- Run-time scalars: step (1-based), lr, wd, clip. group(wd) is 1 where a tensor decays and 0 where not.

op "sumsq" { doc = "sum of squares, in a fixed order", sig = "x[n] -> s[]:f32", nograd = true, body = "s = total(x * x)" }

op "clip_coef" {
  doc = "norm = sqrt(s); coef scales gradients so that the norm is at most clip (0: never), and is -1 if the norm is not finite",
  sig = "s[]:f32 -> coef[]:f32, norm[]:f32", nograd = true,
  body = "norm = sqrt(s); c = where(clip > 0.0, min(1.0, clip / (norm + 1e-6)), 1.0); coef = where(norm < 1e30, c, -1.0)",
}

-- 1 - beta^step is written by tanh because exp would lose its digits where beta^step is near 1:
-- 1 - e^a = -2 t / (1 - t) with t = tanh(a / 2).
op "adamw" {
  doc = "AdamW with decoupled decay (Loshchilov and Hutter 2019); a step whose coef is negative changes nothing. log_beta are the natural logarithms",
  sig = "w[n], g[n]:f32, m[n], v[n], coef[]:f32 -> w2[n], m2[n], v2[n]", nograd = true,
  attrs = { beta1 = 0.9, beta2 = 0.999, eps = 1e-8, log_beta1 = "required", log_beta2 = "required" },
  body = "t1 = tanh(0.5 * step * log_beta1); t2 = tanh(0.5 * step * log_beta2);"
    .. "c1 = -2.0 * t1 / (1.0 - t1); c2 = -2.0 * t2 / (1.0 - t2);"
    .. "h = g * coef; mn = beta1 * m + (1 - beta1) * h; vn = beta2 * v + (1 - beta2) * h * h;"
    .. "u = (mn / c1) / (sqrt(vn / c2) + eps);"
    .. "ok = coef >= 0.0;"
    .. "w2 = where(ok, w - lr * (u + wd * group(wd) * w), w); m2 = where(ok, mn, m); v2 = where(ok, vn, v)",
  inplace = { "w2", "w", "m2", "m", "v2", "v" },
}

op "sgd" {
  doc = "stochastic gradient descent with momentum: m = momentum * m + g, w = w - lr * m; decay is added to g",
  sig = "w[n], g[n]:f32, m[n], coef[]:f32 -> w2[n], m2[n]", nograd = true,
  attrs = { momentum = 0.0 },
  body = "h = g * coef + wd * group(wd) * w; mn = momentum * m + h; ok = coef >= 0.0;"
    .. "w2 = where(ok, w - lr * mn, w); m2 = where(ok, mn, m)",
  inplace = { "w2", "w", "m2", "m" },
}

op "sgd_plain" {
  doc = "stochastic gradient descent without momentum: w = w - lr * (g + decay * w)",
  sig = "w[n], g[n]:f32, coef[]:f32 -> w2[n]", nograd = true,
  body = "w2 = where(coef >= 0.0, w - lr * (g * coef + wd * group(wd) * w), w)",
  inplace = { "w2", "w" },
}
