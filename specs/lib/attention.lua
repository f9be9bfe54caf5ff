-- attention.lua: causal self-attention with grouped key-value heads and rotary positions.
-- q, k and v come out of one matmul: wqkv [d g q e], g key-value heads, q = r + 2 (r query heads, then k, then v), e head size.
local lib <const> = ...
local diag <const>, ops <const>, module <const>, schema <const>, core <const> = lib.diag, lib.ops, lib.module, lib.schema, lib.core
local op <const>, view <const> = ops.fn, ops.view

local rope_rows <const> = {
  theta = { type = "num", default = 10000.0, min = 1, help = "base of the frequencies" },
  scaling = { type = "str", default = "none", one_of = { "none", "linear", "llama3", "yarn" }, help = "how a longer context is reached" },
  factor = { type = "num", default = 8.0, min = 1, help = "by how much" },
  original = { type = "int", default = 8192, min = 1, help = "context before scaling" },
  low = { type = "num", default = 1.0, min = 0, help = "llama3: wavelengths above original / low are scaled in full" },
  high = { type = "num", default = 4.0, min = 0, help = "llama3: wavelengths below original / high are not scaled" },
  beta_fast = { type = "num", default = 32.0, min = 0, help = "yarn: turns in the original context above which nothing is scaled" },
  beta_slow = { type = "num", default = 1.0, min = 0, help = "yarn: turns below which all is scaled" },
}
lib.catalog.rope = rope_rows

local ROTARY_MAX <const> = 480 -- a table keeps its frequencies as attributes of one variable

-- Angular frequency of each pair of a head of size e, and the factor of cos and sin.
local function frequencies(o, e)
  local freq, scale = {}, 1.0
  for i = 0, e // 2 - 1 do freq[i + 1] = o.theta ^ (-2.0 * i / e) end
  if o.scaling == "linear" then
    for i, f in ipairs(freq) do freq[i] = f / o.factor end
  elseif o.scaling == "llama3" then
    for i, f in ipairs(freq) do
      local wave = 2 * math.pi / f
      local m = (o.original / wave - o.low) / (o.high - o.low)
      m = math.max(0, math.min(1, m))
      freq[i] = (1 - m) * f / o.factor + m * f
    end
  elseif o.scaling == "yarn" then
    local function dim(turns) return e * math.log(o.original / (turns * 2 * math.pi)) / (2 * math.log(o.theta)) end
    local low = math.max(0, math.floor(dim(o.beta_fast)))
    local high = math.min(e - 1, math.ceil(dim(o.beta_slow)))
    if high == low then high = high + 0.001 end
    for i, f in ipairs(freq) do
      local keep = 1 - math.max(0, math.min(1, (i - 1 - low) / (high - low)))
      freq[i] = (1 - keep) * f / o.factor + keep * f
    end
    scale = 0.1 * math.log(o.factor) + 1.0
  end
  return freq, scale
end
lib.rope_frequencies = frequencies

-- cos and sin tables [s h], one pair for each way of rotation in the model.
local function tables(o, e, c, s)
  local freq, scale = frequencies(o, e)
  local attrs = { { "scale", scale + 0.0 } }
  local id = { schema.text(scale) }
  for i, f in ipairs(freq) do
    attrs[i + 1] = { "freq", f + 0.0 }
    id[i + 1] = schema.text(f)
  end
  id = table.concat(id, ",")
  c.ropes = c.ropes or {}
  local nth
  for i, known in ipairs(c.ropes) do
    if known == id then nth = i end
  end
  if not nth then nth = #c.ropes + 1; c.ropes[nth] = id end
  local name = nth == 1 and "rope" or "rope_" .. nth
  local dims = { s, core.dim("h", e // 2) }
  return module.table_var(name .. ".cos", "f32", dims, "cos", attrs), module.table_var(name .. ".sin", "f32", dims, "sin", attrs)
end

-- x[b s .. e], the two halves of e rotated.
local function rotate(x, cos, sin)
  local e = ops.dim_size(x.dims[#x.dims])
  local x1 = view.slice(x, -1, 0, e // 2, "h")
  local x2 = view.slice(x, -1, e // 2, e // 2, "h")
  local y1, y2 = op.rope(x1, x2, cos, sin)
  return view.concat({ y1, y2 }, -1, x.dims[#x.dims])
end

local function check(l, cfg, loc)
  cfg.kv_heads = cfg.kv_heads or cfg.heads
  if cfg.heads % cfg.kv_heads ~= 0 then
    diag.fail(diag.find_key(loc, "kv_heads", true), 311,
      ("attention: %d heads over %d kv_heads leaves %d"):format(cfg.heads, cfg.kv_heads, cfg.heads % cfg.kv_heads))
  end
  local rope = cfg.rope
  if rope == true then rope = {} end
  if rope then
    if type(rope) ~= "table" then
      diag.fail(diag.find_key(loc, "rope", true), 202, "attention: rope is a table such as { theta = 10000 }, or false")
    end
    cfg.rope = schema.check_table("rope", rope_rows, rope, { file = loc.file, line = loc.line, name = "rope", table = "rope" })
    cfg.rope.theta = cfg.rope.theta + 0.0
  end
  if cfg.rope and cfg.head_dim and cfg.head_dim % 2 ~= 0 then
    diag.fail(diag.find_key(loc, "head_dim", true), 311, ("attention: rotary positions need an even head_dim, not %d"):format(cfg.head_dim))
  end
end

local function rotary(cfg, e, l)
  if cfg.rope and e > ROTARY_MAX then
    diag.fail(l.loc, 311, ("attention: rotary positions work up to a head size of %d, not %d"):format(ROTARY_MAX, e))
  end
  return e
end

local function head_dim(cfg, d, l)
  if cfg.head_dim then return rotary(cfg, cfg.head_dim, l) end
  if d % cfg.heads ~= 0 then
    diag.fail(diag.find_key(l.loc, "heads", true), 311, ("attention: dim %d over %d heads leaves %d\nhelp: give head_dim"):format(d, cfg.heads, d % cfg.heads))
  end
  local e = d // cfg.heads
  if cfg.rope and e % 2 ~= 0 then
    diag.fail(l.loc, 311, ("attention: rotary positions need an even head size; dim %d over %d heads is %d"):format(d, cfg.heads, e))
  end
  return rotary(cfg, e, l)
end

local function norm(x, name, cfg)
  return (op.rmsnorm(x, module.weight(name .. ".w", { x.dims[#x.dims] }, "one"), { eps = cfg.eps }))
end

lib.constructor("attention", {
  heads = { type = "int", required = true, min = 1, shape = true, help = "query heads" },
  kv_heads = { type = "int", min = 1, shape = true, help = "key-value heads; default: heads" },
  head_dim = { type = "int", min = 1, shape = true, help = "size of a head; default: dim / heads" },
  bias = { type = "bool", default = false, help = "biases on both matrices" },
  qkv_bias = { type = "bool", help = "bias on q, k and v; default: bias" },
  rope = { type = "any", help = "rotary positions: { theta, scaling, ... }" },
  window = { type = "int", default = 0, min = 0, help = "positions a token sees, itself included; 0 = all before it" },
  softcap = { type = "num", default = 0.0, min = 0, help = "scores stay within it; 0 = no cap" },
  scale = { type = "num", min = 0, help = "factor of the scores; default: 1 / sqrt(head_dim)" },
  qk_norm = { type = "bool", default = false, help = "rmsnorm of q and k over each head" },
  eps = { type = "num", default = 1e-5, min = 0, help = "of qk_norm" },
  dropout = { type = "num", default = 0.0, min = 0, below = 1, help = "on the result" },
}, function(cfg, x, c, l)
  local s, d = x.dims[2], x.dims[#x.dims]
  local e = head_dim(cfg, ops.dim_size(d), l)
  local r = cfg.heads // cfg.kv_heads
  local dg, dr, dq, de = core.dim("g", cfg.kv_heads), core.dim("r", r), core.dim("q", r + 2), core.dim("e", e)
  local qkv = ops.contract(x, module.weight("wqkv", { d, dg, dq, de }, lib.STD), { d })
  if cfg.qkv_bias == nil and cfg.bias or cfg.qkv_bias then qkv = lib.bias(qkv, "bqkv", { dg, dq, de }) end

  local v = view.drop(view.slice(qkv, 4, r + 1, 1), 4)
  local q, k
  if cfg.qk_norm then
    q, k = norm(view.slice(qkv, 4, 0, r, "r"), "q_norm", cfg), norm(view.slice(qkv, 4, r, 1), "k_norm", cfg)
    if cfg.rope then
      local cos, sin = tables(cfg.rope, e, c, s)
      q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    end
    k = view.drop(k, 4)
  else
    local qk = view.slice(qkv, 4, 0, r + 1) -- q and k turn in one pass
    if cfg.rope then
      local cos, sin = tables(cfg.rope, e, c, s)
      qk = rotate(qk, cos, sin)
    end
    q, k = view.slice(qk, 4, 0, r, "r"), view.drop(view.slice(qk, 4, r, 1), 4)
  end
  local o = op.attention(q, k, v, c.lo, { scale = (cfg.scale or e ^ -0.5) + 0.0, window = cfg.window, softcap = cfg.softcap })
  local y = ops.contract(o, module.weight("wo", { dg, dr, de, d }, lib.out_std(c)), { dg, dr, de })
  if cfg.bias then y = lib.bias(y, "bo", { d }) end
  return lib.dropout(y, cfg.dropout)
end, check)
