-- ops.lua: what tests/unit_ops.c checks, for every block of generator/rules; nothing here knows a list of ops.
--
--   value   generated code, at odd sizes in f64 and f32, against the ref of the block
--   slope   generated code of the derived backward (or of NAME_bwd) in f64 against central differences of the ref
--   beta    the same backward with its results added to variables: over them, then to what is there
--   split   each dim of the signature cut in two, by the ref: it passes through, or leaves a partial sum, or is whole
--
-- `gen` is the door to the generator; `only` names the ops asked for. The chunk returns how many checks failed.
local interp <const> = load(gen.asset "generator/lib/interp.lua", "@generator/lib/interp.lua")()
for _, path in ipairs(gen.rules()) do interp.load(gen.asset(path), path) end

-- Attributes: those that a block demands, and others where the default switches something off.
local attr_value <const> = {
  by = 0.7, cap = 1.5, scale = 0.4, p = 0.3, window = 3, softcap = 1.5, zloss = 0.01, momentum = 0.9, eps = 1e-5,
  beta1 = 0.9, beta2 = 0.95, take1 = 1 - 0.9, take2 = 1 - 0.95, log_beta1 = math.log(0.9), log_beta2 = math.log(0.95),
}

local checks, bad = {}, 0
local function report(op, what, ok, text)
  checks[what] = (checks[what] or 0) + 1
  if ok then return end
  bad = bad + 1
  print(("op %s: %s: %s"):format(op, what, text))
end

-- ---- sizes and data -----------------------------------------------------------------------------------------------------

local arena <const> = 320 -- elements of the flat arena that [n] stands for

local function sizes(b, row, list, any)
  local size, named = { [".."] = any[1] * any[2], any = any }, {}
  for _, ps in ipairs { b.ins, b.outs } do
    for _, p in ipairs(ps) do
      for _, d in ipairs(p.dims) do
        if d ~= ".." and not size[d] then
          named[#named + 1] = d
          size[d] = d == "n" and arena or list[(#named - 1) % #list + 1]
        end
      end
    end
  end
  if #named == 1 and named[1] ~= "n" then size[named[1]] = row end
  return size
end

-- In (-2, 2), away from 0; equal arguments give equal numbers.
local function noise(port, i)
  local h = (i + 1) * 0x9e3779b97f4a7c15 + port * 0xbf58476d1ce4e5b9
  h = (h ~ (h >> 29)) * 0x94d049bb133111eb
  h = (h ~ (h >> 32)) & 0xfffffffffffff
  local x = h / 0x10000000000000 * 4 - 2
  return math.abs(x) < 0.02 and x + 0.05 or x
end

local function fill(p, port, size, positive)
  local t = {}
  for i = 1, interp.elems(p, size) do
    local x = noise(port, i)
    if p.dtype == "i32" then
      local n = size.v or 9
      x = math.floor((x + 2) / 4 * (n + 1)) - 1
      if p.name == "ids" then x = math.max(x, 0) elseif p.name == "lo" then x = math.max(x, 0) // 3 end
    elseif positive then
      x = math.abs(x) + 0.1
    end
    t[i] = x
  end
  return t
end

local function round(t, dtype)
  if not t or dtype ~= "f32" then return t end
  local out = {}
  for i, x in ipairs(t) do out[i] = math.type(x) == "integer" and x or string.unpack("f", string.pack("f", x)) end
  return out
end

local function attrs(b)
  local list, a = {}, {}
  for k, v in pairs(b.attrs) do
    local x = attr_value[k] or v
    if math.type(v) == "integer" then x = math.tointeger(x) end
    a[k] = x
    list[#list + 1] = { k, x }
  end
  table.sort(list, function(x, y) return x[1] < y[1] end)
  for k, v in pairs(gen.scalar) do a[k] = v end
  a.group = {}
  for i = 1, arena do a.group[i] = (i <= 64 or i > 192) and 1 or 0 end
  return a, list
end

local function finite(outs)
  for _, t in ipairs(outs) do
    for _, x in ipairs(t) do
      if x ~= x or x == math.huge or x == -math.huge then return false end
    end
  end
  return true
end

-- Operands by position and what the ref makes of them. Those of NAME_bwd that NAME computes come from there.
local function data(b, size, dtype, a)
  local fwd = interp.blocks[b.name:match "^(.*)_bwd$"]
  local made = {}
  if fwd then
    local x, y = data(fwd, size, dtype, a)
    for i, p in ipairs(fwd.outs) do made[p.name] = round(y[i], dtype) end
    for i, p in ipairs(fwd.ins) do made[p.name] = x[i] end
  end
  for _, positive in ipairs { false, true } do
    local ins = {}
    for i, p in ipairs(b.ins) do ins[i] = made[p.name] or round(fill(p, i, size, positive), dtype) end
    local outs = interp.run(b, ins, size, a, gen.bits)
    if positive or finite(outs) then return ins, outs end
  end
end

local function type_of(p, size, dtype)
  local t = { dtype = p.dtype == "i32" and "i32" or dtype }
  for _, d in ipairs(p.dims) do
    if d == ".." then
      t[#t + 1] = { "p", size.any[1] }
      t[#t + 1] = { "q", size.any[2] }
    else
      t[#t + 1] = { d, size[d] }
    end
  end
  return t
end

-- A dim that no operand has must be given.
local function new_dims(b)
  local seen, new = {}, {}
  for _, p in ipairs(b.ins) do
    for _, d in ipairs(p.dims) do seen[d] = true end
  end
  for _, p in ipairs(b.outs) do
    for _, d in ipairs(p.dims) do
      if not seen[d] then new[#new + 1] = d end
    end
  end
  return new
end

local function add(b, size, dtype, list, accum)
  local ins, outs, given = {}, nil, { table.unpack(list) }
  for i, p in ipairs(b.ins) do ins[i] = type_of(p, size, dtype) end
  local new = new_dims(b)
  for _, d in ipairs(new) do
    if d ~= ".." then given[#given + 1] = { d, size[d], true } end
  end
  if #new > 0 or b.name == "cast" then
    outs = {}
    for i, p in ipairs(b.outs) do outs[i] = type_of(p, size, dtype) end
  end
  return gen.add(b.name, ins, given, outs, accum)
end

-- ---- comparison ---------------------------------------------------------------------------------------------------------

-- nil, or how far the worst element is off, relative to the largest.
local function differ(got, want, tol)
  local worst, scale = 0, 1e-3
  for i, w in ipairs(want) do
    if w == w and math.abs(w) < math.huge then
      scale = math.max(scale, math.abs(w))
      local d = math.abs(got[i] - w)
      worst = d == d and math.max(worst, d) or math.huge
    elseif got[i] ~= w then
      worst = math.huge
    end
  end
  if worst > tol * scale then return ("differs by %.3g of %.3g"):format(worst, scale) end
end

local function check_values(b, case, tol)
  local got = gen.run(case.program, case.ins)
  for i, p in ipairs(b.outs) do
    local d = differ(got[i], case.outs[i], tol)
    report(b.name, "value", not d, ("%s in %s %s"):format(p.name, case.dtype, d))
  end
end

-- ---- slopes -------------------------------------------------------------------------------------------------------------

-- sum(cotangent * result) moves with element i of operand k by this much
local function slopes(b, case, k)
  local out, h, x = {}, 1e-5, case.ins[k]
  local function loss()
    local s = 0
    for i, t in ipairs(interp.run(b, case.ins, case.size, case.a, gen.bits)) do
      for e, v in ipairs(b.outs[i].saved and {} or t) do s = s + v * case.cot[i][e] end
    end
    return s
  end
  for i = 1, #x do
    local keep = x[i]
    x[i] = keep + h
    local up = loss()
    x[i] = keep - h
    out[i] = (up - loss()) / (2 * h)
    x[i] = keep
  end
  return out
end

-- The backward of b as a program: { program, operands, { operand of b whose slope result j is } }; nil: it has none.
local function backward(b, case)
  local ins, types, to = {}, {}, {}
  local function operand(p, flat)
    ins[#ins + 1] = flat
    types[#types + 1] = type_of(p, case.size, case.dtype)
  end
  if b.body then
    local name, from, into = gen.derive(b.name)
    local n, m = #b.ins, #b.outs
    for _, f in ipairs(from) do
      if f < n then operand(b.ins[f + 1], case.ins[f + 1])
      elseif f < n + m then operand(b.outs[f - n + 1], case.outs[f - n + 1])
      else operand(b.outs[f - n - m + 1], case.cot[f - n - m + 1]) end
    end
    local seen, given, outs = {}, { table.unpack(case.list) }, {}
    for _, t in ipairs(types) do
      for _, d in ipairs(t) do seen[d[1]] = true end
    end
    for j, k in ipairs(into) do
      to[j], outs[j] = k + 1, type_of(b.ins[k + 1], case.size, case.dtype)
      for _, d in ipairs(b.ins[k + 1].dims) do -- a dim that no operand has must be given
        if d ~= ".." and not seen[d] then given[#given + 1] = { d, case.size[d], true } end
        seen[d] = true
      end
    end
    return { program = gen.add(name, types, given, outs), adds = gen.add(name, types, given, outs, true), ins = ins, to = to }
  end
  local back = interp.blocks[b.name .. "_bwd"]
  if not back then return end
  local known = {}
  for i, p in ipairs(b.ins) do known[p.name] = case.ins[i] end
  for i, p in ipairs(b.outs) do known[p.name], known["d" .. p.name] = case.outs[i], case.cot[i] end
  for i, p in ipairs(back.ins) do ins[i] = known[p.name] end
  for j, q in ipairs(back.outs) do
    for i, p in ipairs(b.ins) do
      if q.name == "d" .. p.name then to[j] = i end
    end
  end
  local _, list = attrs(back)
  local program = add(back, case.size, case.dtype, list)
  -- Kernels with several results (attention) write activations, never variables: they take no beta.
  local adds = #back.outs == 1 and add(back, case.size, case.dtype, list, true)
  return { program = program, adds = adds, ins = ins, to = to }
end

local function check_slopes(b, case)
  local got = gen.run(case.back.program, case.back.ins)
  for j, k in ipairs(case.back.to) do
    local d = differ(got[j], slopes(b, case, k), 1e-6)
    report(b.name, "slope", not d, ("cotangent of %s %s"):format(b.ins[k].name, d))
  end
end

local function check_beta(b, case)
  if not case.back.adds then return end
  local plain = gen.run(case.back.program, case.back.ins)
  local over = gen.run(case.back.adds, case.back.ins)
  local more = gen.run(case.back.adds, case.back.ins, plain)
  for j, t in ipairs(plain) do
    local twice = {}
    for i, x in ipairs(t) do twice[i] = 2 * x end
    local d = over[j] and (differ(over[j], t, 1e-14) or differ(more[j], twice, 1e-14))
    if over[j] then report(b.name, "beta", not d, ("result %d %s"):format(j, d)) end
  end
end

-- ---- splits -------------------------------------------------------------------------------------------------------------

local function part(p, flat, size, dim, from, len)
  if not flat or not p.has[dim] then return flat end
  local inner = 1
  for k = p.has[dim] + 1, #p.dims do inner = inner * size[p.dims[k]] end
  local out, n = {}, size[dim]
  for i, x in ipairs(flat) do
    local at = (i - 1) // inner % n
    if at >= from and at < from + len then out[#out + 1] = x end
  end
  return out
end

local function sum_of(x, y)
  local out = {}
  for i = 1, #x do out[i] = x[i] + y[i] end
  return out
end

-- What the halves say: "pass" if each result is what a rank should hold, else which is not.
local function behaves(b, size, dim, ins, outs, a)
  local half, got = size[dim] // 2, {}
  for r = 0, 1 do
    local own, mine, group = setmetatable({ [dim] = half }, { __index = size }), {}, a.group
    for i, p in ipairs(b.ins) do mine[i] = part(p, ins[i], size, dim, r * half, half) end
    local seen = setmetatable({ group = dim == "n" and table.move(group, r * half + 1, (r + 1) * half, 1, {}) or nil }, { __index = a })
    local ok, res = pcall(interp.run, b, mine, own, seen, function(e) return gen.bits(e + (dim == ".." and r * half or 0)) end)
    if not ok then return "cannot run on a part" end
    got[r] = res
  end
  for i, p in ipairs(b.outs) do
    if p.has[dim] then
      for r = 0, 1 do
        local d = differ(got[r][i], part(p, outs[i], size, dim, r * half, half), 1e-12)
        if d then return ("%s of rank %d %s"):format(p.name, r, d) end
      end
    else
      local d = differ(sum_of(got[0][i], got[1][i]), outs[i], 1e-12)
      if d then return ("the sum of both %s %s"):format(p.name, d) end
    end
  end
  return "pass"
end

local function check_splits(b, whole)
  local size = sizes(b, 6, { 4, 6, 2, 2, 4 }, { 2, 2 })
  local a = attrs(b)
  local ins, outs = data(b, size, "f64", a)
  local done = {}
  for _, p in ipairs(b.ins) do
    for _, dim in ipairs(p.dims) do
      if not done[dim] then
        done[dim] = true
        local says, kept = behaves(b, size, dim, ins, outs, a), false
        for _, q in ipairs(b.outs) do kept = kept or q.has[dim] end
        if not whole[dim] then
          report(b.name, "split", says == "pass", ("%s is cut: %s"):format(dim, says))
        elseif kept then
          report(b.name, "split", says ~= "pass", ("%s must be whole, but the halves agree"):format(dim))
        end
      end
    end
  end
end

local function whole_dims(b)
  local w = gen.whole(b.name) or {}
  for _, d in ipairs(type(b.whole) == "string" and { b.whole } or b.whole or {}) do w[d] = true end
  return w
end

-- ---- all ops ------------------------------------------------------------------------------------------------------------

local variants <const> = {
  { dtype = "f64", tol = 1e-12, row = 13, list = { 2, 7, 3, 2, 5 }, any = { 2, 3 }, slopes = true },
  { dtype = "f32", tol = 3e-5, row = 37, list = { 3, 5, 1, 3, 9 }, any = { 3, 5 } },
}

for _, v in ipairs(variants) do
  gen.open(v.dtype, arena)
  local cases = {}
  for _, name in ipairs(interp.order) do
    local b = interp.blocks[name]
    if b.sig and (not next(only) or only[name]) then
      if not b.ref then report(name, "ref", false, "the block has none") goto continue end
      local size = sizes(b, v.row, v.list, v.any)
      local a, list = attrs(b)
      local case = { b = b, size = size, a = a, list = list, dtype = v.dtype, cot = {} }
      case.ins, case.outs = data(b, size, v.dtype, a)
      for i, p in ipairs(b.outs) do case.cot[i] = fill(p, 20 + i, size) end
      case.program = add(b, size, v.dtype, list)
      if v.slopes then check_splits(b, whole_dims(b)) end
      case.back = v.slopes and not b.nograd and backward(b, case)
      cases[#cases + 1] = case
    end
    ::continue::
  end
  gen.compile()
  for _, case in ipairs(cases) do
    check_values(case.b, case, v.tol)
    if case.back then
      check_slopes(case.b, case)
      check_beta(case.b, case)
    end
  end
end

for _, what in ipairs { "value", "slope", "beta", "split" } do print(("%-6s %4d checks"):format(what, checks[what] or 0)) end
print(bad .. " failed")
return bad
