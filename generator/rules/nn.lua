-- nn.lua: norms, activations, losses, attention, embedding.

op "layernorm" {
  doc = "(x - mean) / sqrt(variance + eps) * w + b over the innermost dim (Ba et al. 2016)",
  sig = "x[.. d], w[d], b[d] -> y[.. d], saved m[..]:f32, saved r[..]:f32",
  attrs = { eps = 1e-5 },
  body = "m = mean(x, d); c = x - m; r = rsqrt(mean(c * c, d) + eps); y = c * r * w + b",
  ref = function(x, w, b, a)
    local m = sum(x) / #x
    local r = (sum(each(x, function(v) return (v - m) ^ 2 end)) / #x + a.eps) ^ -0.5
    return each(x, function(v, i) return w[i] * (v - m) * r + b[i] end), m, r
  end,
}

op "layernorm_nb" {
  doc = "layernorm without bias",
  sig = "x[.. d], w[d] -> y[.. d], saved m[..]:f32, saved r[..]:f32",
  attrs = { eps = 1e-5 },
  body = "m = mean(x, d); c = x - m; r = rsqrt(mean(c * c, d) + eps); y = c * r * w",
  ref = function(x, w, a)
    local m = sum(x) / #x
    local r = (sum(each(x, function(v) return (v - m) ^ 2 end)) / #x + a.eps) ^ -0.5
    return each(x, function(v, i) return w[i] * (v - m) * r end), m, r
  end,
}

op "rmsnorm" {
  doc = "x / sqrt(mean of squares + eps) * w over the innermost dim (Zhang and Sennrich 2019)",
  sig = "x[.. d], w[d] -> y[.. d], saved r[..]:f32",
  attrs = { eps = 1e-5 },
  body = "r = rsqrt(mean(x * x, d) + eps); y = x * r * w",
  ref = function(x, w, a)
    local r = (sum(each(x, function(v) return v ^ 2 end)) / #x + a.eps) ^ -0.5
    return each(x, function(v, i) return w[i] * v * r end), r
  end,
}

op "softmax" {
  doc = "e^x over its sum, over the innermost dim", sig = "x[.. k] -> y[.. k]",
  body = "y = exp(x - lse(x, k))",
  ref = function(x)
    local z = sum(each(x, math.exp))
    return each(x, function(v) return math.exp(v) / z end)
  end,
}

op "cross_entropy" {
  doc = "lse(x) - x[t], nats; target -1 has no loss and no gradient; zloss adds zloss * lse(x)^2",
  sig = "x[.. v], t[..]:i32 -> loss[..]:f32", attrs = { zloss = 0.0 },
  body = "l = lse(x, v); p = sum(where(index(v) == t, x, 0.0), v); loss = where(t >= 0, l - p + zloss * l * l, 0.0)",
  ref = function(x, t, a)
    local l = math.log(sum(each(x, math.exp)))
    return t < 0 and 0 or l - x[t + 1] + a.zloss * l ^ 2
  end,
}

-- Activations. Each op x[..] -> y[..] can be `act` of mg.mlp.
op "gelu" {
  doc = "x times the normal distribution function, exact (Hendrycks and Gimpel 2016)", sig = "x[..] -> y[..]",
  body = "y = 0.5 * x * (1 + erf(x * 0.70710678118654752))",
  ref = function(x) return x * normal_below(x) end,
}
op "gelu_tanh" {
  doc = "gelu by its tanh approximation, as in GPT-2", sig = "x[..] -> y[..]",
  body = "y = 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)))",
  ref = function(x) return gelu_tanh(x) end,
}
op "quick_gelu" { doc = "x * sigmoid(1.702 x), as in CLIP", sig = "x[..] -> y[..]", body = "y = x * sigmoid(1.702 * x)",
  ref = function(x) return x / (1 + math.exp(-1.702 * x)) end }
op "silu"  { doc = "x * sigmoid(x)", sig = "x[..] -> y[..]", body = "y = x * sigmoid(x)", ref = function(x) return silu(x) end }
op "relu"  { doc = "max(x, 0)", sig = "x[..] -> y[..]", body = "y = max(x, 0.0)", ref = function(x) return x > 0 and x or 0 end }
op "relu2" { doc = "max(x, 0) squared (So et al. 2021)", sig = "x[..] -> y[..]", body = "r = max(x, 0.0); y = r * r",
  ref = function(x) return x > 0 and x ^ 2 or 0 end }

-- Gated units: an activation of the gate times the other half (Shazeer 2020).
op "swiglu" { doc = "silu(g) * u", sig = "g[..], u[..] -> y[..]", body = "y = g * sigmoid(g) * u", ref = function(g, u) return silu(g) * u end }
op "geglu"  { doc = "gelu(g) * u", sig = "g[..], u[..] -> y[..]", body = "y = 0.5 * g * (1 + erf(g * 0.70710678118654752)) * u",
  ref = function(g, u) return g * normal_below(g) * u end }
op "geglu_tanh" {
  doc = "gelu_tanh(g) * u", sig = "g[..], u[..] -> y[..]",
  body = "y = 0.5 * g * (1 + tanh(0.79788456080286536 * (g + 0.044715 * g * g * g))) * u",
  ref = function(g, u) return gelu_tanh(g) * u end,
}
op "reglu"  { doc = "relu(g) * u", sig = "g[..], u[..] -> y[..]", body = "y = max(g, 0.0) * u", ref = function(g, u) return g > 0 and g * u or 0 end }
op "glu"    { doc = "sigmoid(g) * u", sig = "g[..], u[..] -> y[..]", body = "y = sigmoid(g) * u",
  ref = function(g, u) return u / (1 + math.exp(-g)) end }

op "rope" {
  doc = "rotary positions on the two halves of each head; cs and sn are tables of cos and sin (Su et al. 2021)",
  sig = "x1[b s .. h], x2[b s .. h], cs[s h]:f32, sn[s h]:f32 -> y1[b s .. h], y2[b s .. h]",
  body = "y1 = x1 * cs - x2 * sn; y2 = x2 * cs + x1 * sn",
  inplace = { "y1", "x1", "y2", "x2" },
  ref = function(x1, x2, c, n)
    local y1, y2 = {}, {}
    for b = 1, #x1 do
      y1[b], y2[b] = {}, {}
      for s = 1, #c do
        y1[b][s] = each(c[s], function(cos, h) return cos * x1[b][s][h] - n[s][h] * x2[b][s][h] end)
        y2[b][s] = each(c[s], function(cos, h) return n[s][h] * x1[b][s][h] + cos * x2[b][s][h] end)
      end
    end
    return y1, y2
  end,
}

op "dropout" {
  doc = "zero with probability p, else x / (1 - p); the draw depends on seed, step, site and element only",
  sig = "x[..] -> y[..]", attrs = { p = "required" },
  body = "y = where(unit(rand(site)) < p, 0.0, x * (1 / (1 - p)))",
  ref = function(x, a) return (a.bits >> 8) / 2 ^ 24 < a.p and 0 or x / (1 - a.p) end,
}

local function attention_flops(n, attr)
  local keys = n.s
  if attr.window and attr.window > 0 then keys = math.min(keys, 2 * attr.window) end
  return 2 * n.b * n.s * keys * n.g * n.r * n.e -- two products; causal: half of the square
end

op "attention" {
  doc = "softmax(q k' * scale) v, causal: q is r heads for each of g key-value heads; lse is the row's log-sum. window > 0: a "
    .. "token sees that many positions, itself included; softcap > 0: logits are capped; lo: first position visible to a token "
    .. "(packed documents)",
  sig = "q[b s g r e], k[b s g e], v[b s g e], lo[b s]?:i32 -> o[b s g r e], saved lse[b s g r]:f32",
  kernel = "attention", mixes = true, whole = { "s", "e" },
  attrs = { scale = "required", window = 0, softcap = 0.0, causal = 1 },
  flops = attention_flops,
  vjp = function(c)
    local q, k, v, lo = c.ins[1], c.ins[2], c.ins[3], c.ins[4]
    local attr = {}
    for _, key in ipairs { "scale", "window", "softcap", "causal" } do attr[#attr + 1] = { key, c.attr[key] } end
    local dq, dk, dv = node("attention_bwd", { q, k, v, c.outs[1], c.outs[2], c.cot[1], lo or nil }, attr)
    return { dq, dk, dv }
  end,
  ref = function(q, k, v, lo, a)
    local o, lse = {}, {}
    each_query(q, function(b, s, g, r)
      local p, l = weights(q[b][s][g][r], k[b], g, s, lo and lo[b][s] or 0, a)
      put(lse, l, b, s, g, r)
      put(o, each(q[b][s][g][r], function(_, e)
        return sum(each(p, function(w, j) return w.p * v[b][j][g][e] end))
      end), b, s, g, r)
    end)
    return o, lse
  end,
}

op "attention_bwd" {
  doc = "gradients of attention from its operands, its results and the cotangent of o",
  sig = "q[b s g r e], k[b s g e], v[b s g e], o[b s g r e], lse[b s g r]:f32, do[b s g r e], lo[b s]?:i32 "
    .. "-> dq[b s g r e], dk[b s g e], dv[b s g e]",
  kernel = "attention_bwd", mixes = true, nograd = true, whole = { "s", "e" },
  attrs = { scale = "required", window = 0, softcap = 0.0, causal = 1 },
  flops = function(n, attr) return 2.5 * attention_flops(n, attr) end,
  ref = function(q, k, v, o, lse, d, lo, a)
    local dq, dk, dv = zeros(q), zeros(k), zeros(v)
    each_query(q, function(b, s, g, r)
      local dy, y = d[b][s][g][r], o[b][s][g][r]
      for j, w in ipairs(weights(q[b][s][g][r], k[b], g, s, lo and lo[b][s] or 0, a)) do
        local ds = sum(each(dy, function(x, e) return x * (v[b][j][g][e] - y[e]) end)) * w.p * w.slope
        for e = 1, #dy do
          dv[b][j][g][e] = dv[b][j][g][e] + w.p * dy[e]
          dq[b][s][g][r][e] = dq[b][s][g][r][e] + ds * k[b][j][g][e]
          dk[b][j][g][e] = dk[b][j][g][e] + ds * q[b][s][g][r][e]
        end
      end
    end)
    return dq, dk, dv
  end,
}

op "embed" {
  doc = "row ids[..] of w", sig = "ids[..]:i32, w[v d] -> y[.. d]", kernel = "embed", whole = { "v" },
  vjp = function(c)
    local w = c.ins[2]
    return { false, (node("embed_bwd", { c.ins[1], c.cot[1] }, { { "v", { dim = w.dims[1] } } }, { { "f32", w.dims } })) }
  end,
  ref = function(id, w) return w[id + 1] end,
}

op "embed_bwd" {
  doc = "gradient of w: for each row of w the sum of the cotangents of its uses, in order of position",
  sig = "ids[..]:i32, dy[.. d] -> dw[v d]:f32", kernel = "embed_bwd", nograd = true,
  ref = function(ids, dy, a)
    local dw = {}
    for row = 1, a.size.v do
      dw[row] = each(dy[1], function(_, e)
        return sum(each(ids, function(id, i) return id + 1 == row and dy[i][e] or 0 end))
      end)
    end
    return dw
  end,
}
