-- interp.lua: what ops mean, slowly: the `ref` functions of the op blocks on tiny tensors, in f64.
--
-- A ref gets its operands in the order of the signature (nil: an absent one), then a table with attributes, run-time
-- scalars, `size` (of each dim), `group` (1 where a tensor decays) and `bits` (of the element). Tensors are nested lists, a
-- tensor without dims is a number. `..` is one dim here. Where every result has it, the ref is called once for each index
-- of it and sees the rest: a ref of x[..] -> y[..] works on numbers, one of x[.. d], w[d] -> y[.. d] on rows.
-- Refs are written from the doc of the op, not from its body: that the two agree is what tests/unit_ops.c checks.

local interp <const> = { blocks = {}, order = {} }

-- ---- what refs may call -----------------------------------------------------------------------------------------------

local word <const> = setmetatable({}, { __index = _G })

function word.each(t, f)
  local out = {}
  for i, v in ipairs(t) do out[i] = f(v, i) end
  return out
end
function word.sum(t)
  local s = 0
  for _, v in ipairs(t) do s = s + v end
  return s
end
function word.tanh(x) return 1 - 2 / (math.exp(2 * x) + 1) end
function word.silu(x) return x / (1 + math.exp(-x)) end
function word.gelu_tanh(x) return x / 2 * (1 + word.tanh((2 / math.pi) ^ 0.5 * (x + 0.044715 * x ^ 3))) end

-- The normal distribution function: 1/2 + density(x) * (x + x^3/3 + x^5/15 + ...), all terms of one sign.
function word.normal_below(x)
  local term, s, k = x, 0, 1
  while math.abs(term) > 1e-18 * math.abs(s) do
    s, k = s + term, k + 2
    term = term * x * x / k
  end
  return 0.5 + s * math.exp(-x * x / 2) / (2 * math.pi) ^ 0.5
end

function word.zeros(t)
  return type(t) ~= "table" and 0 or word.each(t, word.zeros)
end
function word.put(t, v, i, ...)
  if select("#", ...) == 0 then t[i] = v return end
  t[i] = t[i] or {}
  word.put(t[i], v, ...)
end

function word.each_query(q, f)
  for b = 1, #q do
    for s = 1, #q[b] do
      for g = 1, #q[b][s] do
        for r = 1, #q[b][s][g] do f(b, s, g, r) end
      end
    end
  end
end

-- Of one query at position s: for every key its probability and the slope of its score, and the log of the sum.
function word.weights(q, keys, g, s, lo, a)
  local w, top, z = {}, -math.huge, 0
  for j = 1, #keys do
    local seen = j > lo and (a.causal == 0 or j <= s) and (a.window == 0 or j > s - a.window)
    local x = word.sum(word.each(q, function(v, e) return v * keys[j][g][e] end)) * a.scale
    local capped = a.softcap > 0 and a.softcap * word.tanh(x / a.softcap) or x
    local slope = a.softcap > 0 and 1 - (capped / a.softcap) ^ 2 or 1
    w[j] = { x = seen and capped or -math.huge, slope = slope * a.scale }
    top = math.max(top, w[j].x)
  end
  for _, k in ipairs(w) do
    k.p = top > -math.huge and math.exp(k.x - top) or 0
    z = z + k.p
  end
  for _, k in ipairs(w) do k.p = z > 0 and k.p / z or 0 end
  return w, z > 0 and top + math.log(z) or -math.huge
end

-- ---- blocks -----------------------------------------------------------------------------------------------------------

local function ports(text)
  local out = {}
  for head, dims, tail in text:gmatch "([^,%[]+)%[([^%]]*)%]([?:%w]*)" do
    local p = { name = head:match "([%w_]+)%s*$", saved = head:find "saved%s" ~= nil, dims = {}, has = {} }
    p.optional, p.dtype = tail:find "?" ~= nil, tail:match ":(%w+)"
    for d in dims:gmatch "%S+" do
      p.dims[#p.dims + 1] = d
      p.has[d] = #p.dims
    end
    out[#out + 1] = p
  end
  return out
end

function interp.load(text, name)
  local env = setmetatable({
    op = function(op)
      return function(b)
        b.name = op
        b.attrs = b.attrs or {}
        local ins, outs = (b.sig or "->"):match "^(.*)%->(.*)$"
        b.ins, b.outs = ports(ins), ports(outs)
        interp.blocks[op] = b
        interp.order[#interp.order + 1] = op
      end
    end,
  }, { __index = word })
  assert(load(text, "@" .. name, "t", env))()
end

-- ---- calling a ref ----------------------------------------------------------------------------------------------------

-- Flat list, row-major, to nested lists; pick: the index that dim `..` is fixed at.
local function nest(p, flat, size, pick)
  local function at(k, base)
    if k > #p.dims then return flat[base + 1] end
    local n = size[p.dims[k]]
    if p.dims[k] == ".." and pick then return at(k + 1, base * n + pick - 1) end
    local t = {}
    for i = 1, n do t[i] = at(k + 1, base * n + i - 1) end
    return t
  end
  return at(1, 0)
end

local function flatten(p, v, size, pick, flat)
  local function at(k, base, x)
    if k > #p.dims then flat[base + 1] = x return end
    local n = size[p.dims[k]]
    if p.dims[k] == ".." and pick then return at(k + 1, base * n + pick - 1, x) end
    for i = 1, n do at(k + 1, base * n + i - 1, x[i]) end
  end
  at(1, 0, v)
end

-- ins: flat lists by position (false: absent); size: by dim; a: what the ref sees. -> flat lists of the results.
-- bits(i): random bits of element i (0-based).
function interp.run(b, ins, size, a, bits)
  local out, over = {}, #b.outs > 0
  for i, p in ipairs(b.outs) do
    out[i] = {}
    over = over and p.has[".."] ~= nil
  end
  a.size = size
  for pick = 1, over and size[".."] or 1 do
    local arg = {}
    for i, p in ipairs(b.ins) do arg[i] = ins[i] and nest(p, ins[i], size, over and pick) or nil end
    a.bits = bits and bits(pick - 1)
    arg[#b.ins + 1] = a
    local got = { b.ref(table.unpack(arg, 1, #b.ins + 1)) }
    for i, p in ipairs(b.outs) do flatten(p, got[i], size, over and pick, out[i]) end
  end
  return out
end

function interp.elems(p, size)
  local n = 1
  for _, d in ipairs(p.dims) do n = n * size[d] end
  return n
end

return interp
