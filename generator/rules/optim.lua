-- optim.lua: gradient norm, clipping and optimizers, over flat arenas of n elements.
-- Run-time scalars: step (1-based), lr, wd, clip. group(wd) is 1 where a tensor decays and 0 where not.

op "sumsq" { doc = "sum of squares, in a fixed order", sig = "x[n] -> s[]:f32", nograd = true, body = "s = total(x * x)",
  ref = function(x) return sum(each(x, function(v) return v ^ 2 end)) end }

op "clip_coef" {
  doc = "norm = sqrt(s); coef scales gradients so that the norm is at most clip (0: never); ok is 1 if the norm is finite, else 0",
  sig = "s[]:f32 -> coef[]:f32, norm[]:f32, ok[]:f32", nograd = true,
  body = "norm = sqrt(s); coef = where(clip > 0.0, min(1.0, clip / (norm + 1e-6)), 1.0); ok = where(norm < 1e30, 1.0, 0.0)",
  ref = function(s, a)
    local norm = s ^ 0.5
    local over = a.clip > 0 and norm + 1e-6 > a.clip
    return over and a.clip / (norm + 1e-6) or 1, norm, norm < 1e30 and 1 or 0
  end,
}

-- 1 - beta^step is written by tanh because exp would lose its digits where beta^step is near 1:
-- 1 - e^a = -2 t / (1 - t) with t = tanh(a / 2).
op "adamw" {
  doc = "AdamW with decoupled decay (Loshchilov and Hutter 2019); where ok is 0 nothing changes. take = 1 - beta, "
    .. "log_beta = the natural logarithm, both computed in f64",
  sig = "w[n], g[n]:f32, m[n], v[n], coef[]:f32, ok[]:f32 -> w2[n], m2[n], v2[n]", nograd = true,
  attrs = { beta1 = "required", beta2 = "required", eps = 1e-8, take1 = "required", take2 = "required",
    log_beta1 = "required", log_beta2 = "required" },
  body = "t1 = tanh(0.5 * step * log_beta1); t2 = tanh(0.5 * step * log_beta2);"
    .. "c1 = -2.0 * t1 / (1.0 - t1); c2 = -2.0 * t2 / (1.0 - t2);"
    .. "h = g * coef; mn = beta1 * m + take1 * h; vn = beta2 * v + take2 * h * h;"
    .. "u = (mn / c1) / (sqrt(vn / c2) + eps);"
    .. "w2 = where(ok > 0.5, w - lr * (u + wd * group(wd) * w), w); m2 = where(ok > 0.5, mn, m); v2 = where(ok > 0.5, vn, v)",
  inplace = { "w2", "w", "m2", "m", "v2", "v" },
  ref = function(w, g, m, v, coef, ok, a)
    if ok <= 0.5 then return w, m, v end
    local m2 = each(m, function(x, i) return x + (1 - a.beta1) * (coef * g[i] - x) end)
    local v2 = each(v, function(x, i) return x + (1 - a.beta2) * ((coef * g[i]) ^ 2 - x) end)
    local c1, c2 = 1 - a.beta1 ^ a.step, 1 - a.beta2 ^ a.step
    local w2 = each(w, function(x, i)
      return x * (1 - a.lr * a.wd * a.group[i]) - a.lr * m2[i] / c1 / ((v2[i] / c2) ^ 0.5 + a.eps)
    end)
    return w2, m2, v2
  end,
}

op "sgd" {
  doc = "stochastic gradient descent: m = momentum * m + g + decay * w, w = w - lr * m; where ok is 0 nothing changes",
  sig = "w[n], g[n]:f32, m[n], coef[]:f32, ok[]:f32 -> w2[n], m2[n]", nograd = true,
  attrs = { momentum = 0.0 },
  body = "mn = momentum * m + g * coef + wd * group(wd) * w;"
    .. "w2 = where(ok > 0.5, w - lr * mn, w); m2 = where(ok > 0.5, mn, m)",
  inplace = { "w2", "w", "m2", "m" },
  ref = function(w, g, m, coef, ok, a)
    if ok <= 0.5 then return w, m end
    local m2 = each(m, function(x, i) return a.momentum * x + coef * g[i] + a.wd * a.group[i] * w[i] end)
    return each(w, function(x, i) return x - a.lr * m2[i] end), m2
  end,
}
