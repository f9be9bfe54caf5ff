-- module.lua: tracing. Layers run once, with values instead of numbers, and leave nodes behind.
--
-- The model is cut into segments: each layer of a stack is one, and so is what stands between stacks. A segment
-- becomes a Func and one call of chain "fwd". A value of another segment that is used becomes an input here, an
-- output there and a Reg between the calls.
local lib <const> = ...
local core <const>, diag <const>, ops <const>, schema <const> = lib.core, lib.diag, lib.ops, lib.schema

local module = {}
local T -- the trace: segments, seg (current), loop, path, regs, vars, scope

local function need_trace(what)
  if not T then diag.fail(diag.here(what), 314, what .. ": only inside of a layer or of `forward`") end
end

-- ---- paths ------------------------------------------------------------------------------------------------------

local function path_str() return table.concat(T.path, ".") end

local function set_place()
  local loc = T.locs[#T.locs] or {}
  local path, prefix = path_str(), T.seg and T.seg.prefix or ""
  if prefix ~= "" and path:sub(1, #prefix + 1) == prefix .. "." then path = path:sub(#prefix + 2)
  elseif path == prefix then path = "" end
  core.at(path, loc.file or "", loc.line or 0)
end

local function push(name, loc)
  if name then T.path[#T.path + 1] = name end
  T.locs[#T.locs + 1] = loc or T.locs[#T.locs] or {}
  set_place()
end

local function pop(name)
  if name then T.path[#T.path] = nil end
  T.locs[#T.locs] = nil
  set_place()
end

-- Where the layer that runs stands in the spec.
function module.place() return T and T.locs[#T.locs] or {} end

-- A node of user code stands where its call does.
function module.user_line(name)
  if not T or T.user == 0 then return end
  local h = diag.here(name)
  if h.line then
    T.locs[#T.locs] = { file = h.file, line = h.line }
    set_place()
  end
end

ops.user_line = module.user_line

-- Nodes that belong to no layer of their own get a part of the path.
function module.within(name, loc, fn, ...)
  push(name, loc)
  local out = fn(...)
  pop(name)
  return out
end

module.enter, module.leave = push, pop

-- ---- segments ---------------------------------------------------------------------------------------------------

local function begin_segment(name, prefix, layer)
  local seg = { name = name, prefix = prefix, layer = layer, ins = {}, map = {}, outs = {}, reads = {} }
  core.at("", "", 0)
  seg.func = core.func(name, "fwd")
  T.segments[#T.segments + 1] = seg
  T.seg = seg
  T.by_func[seg.func] = seg
  set_place()
  return seg
end

local function end_segment()
  T.seg = nil
  core.set_func(0)
end

local function segment() -- the current one, or a new one between stacks
  if not T.seg then begin_segment(T.next_name or ("part" .. #T.segments), "", -1) end
  return T.seg
end

-- The Reg of a value that crosses calls; a batch input has its own.
local function reg_of(v)
  local r = T.regs[v.id]
  if not r then
    local dims = v.dims
    r = core.reg(v.io or v.reg_name or ("x" .. T.nreg), v.dtype, dims, v.io ~= nil)
    if not v.io then T.nreg = T.nreg + 1 end
    T.regs[v.id] = r
  end
  return r
end

local function export(v, name)
  local seg = T.by_func[v.func]
  if not seg then diag.fail(diag.here(), 314, "a value of a loop cannot leave it") end
  local at = core.output(v.id)
  if not seg.outs[at] then
    if name then T.regs[v.id] = core.reg(name, v.dtype, v.dims, false) end
    seg.outs[at] = reg_of(v)
  end
end
module.export = export

local function import_segment(v)
  local seg = segment()
  if v.func == seg.func then return v end
  if v.var then return module.read_var(table.unpack(v.var)) end -- a weight is read where it is used
  if seg.map[v.id] then return seg.map[v.id] end
  if not v.io then export(v) end
  T.lo_read = T.lo_read or v.io == "lo"
  seg.ins[#seg.ins + 1] = reg_of(v)
  local flags = v.io and ops.NOGRAD or (v.flags or 0)
  local id = core.input(v.dtype, v.dims, v.io or "", flags)
  seg.map[v.id] = ops.wrap(id)
  return seg.map[v.id]
end

function ops.import(v)
  if lib.in_vjp then return v end
  need_trace "ops"
  local loop = T.loop
  if not loop then return import_segment(v) end
  if v.func == loop.body then return v end
  if loop.map[v.id] then return loop.map[v.id] end
  core.set_func(T.seg.func)
  T.loop = nil
  local outer = import_segment(v)
  T.loop = loop
  core.set_func(loop.body)
  if loop.map[outer.id] then return loop.map[outer.id] end
  loop.operands[#loop.operands + 1] = outer.id
  loop.kinds[#loop.kinds + 1] = "invariant"
  local inner = ops.wrap(core.input(outer.dtype, outer.dims, "", outer.flags))
  loop.map[v.id], loop.map[outer.id] = inner, inner
  return inner
end

-- Run fn once a chunk: slices lose their first dim inside; fn returns values that are summed over the trips.
function module.loop(name, trips, slices, fn)
  local seg = segment()
  local loop = { operands = {}, kinds = {}, map = {} }
  local list = {}
  for i, v in ipairs(slices) do list[i] = import_segment(v) end
  loop.body = core.func(name, "loop")
  T.loop = loop
  local inner = {}
  for i, v in ipairs(list) do
    loop.operands[i], loop.kinds[i] = v.id, "slice"
    inner[i] = ops.wrap(core.input(v.dtype, table.move(v.dims, 2, #v.dims, 1, {}), "", v.flags))
  end
  local sums = { fn(table.unpack(inner)) }
  local types, kinds = {}, {}
  for i, v in ipairs(sums) do
    core.output(v.id)
    types[i], kinds[i] = { v.dtype, v.dims }, "sum"
  end
  T.loop = nil
  core.set_func(seg.func)
  local first = core.loop(loop.body, loop.operands, loop.kinds, types, kinds, trips)
  local out = {}
  for i = 1, #sums do out[i] = ops.wrap(first + i - 1) end
  return table.unpack(out)
end

-- ---- weights ----------------------------------------------------------------------------------------------------

-- "d f=1024 e" -> dim ids. A name without a size is a dim that the layer has seen.
local function parse_dims(text, what)
  local out = {}
  if type(text) == "table" then
    for i, d in ipairs(text) do
      if math.type(d) ~= "integer" or not pcall(ops.dim_name, d) then
        diag.fail(diag.here "weight", 317, ("%s: item %d of its dims is not a dim of a value, such as x.dims[1]"):format(what, i))
      end
    end
    return text
  end
  if type(text) ~= "string" then
    diag.fail(diag.here "weight", 202, ("%s: its dims are text such as \"d f=1024\", or a table of dims, not a %s"):format(what, type(text)))
  end
  for part in text:gmatch "%S+" do
    local name, size = part:match "^([%a_][%w_]*)=(%d+)$"
    if name then
      local n = math.tointeger(tonumber(size))
      if not n or n < 1 or n > 0x7fffffff then
        diag.fail(diag.here "weight", 203, ("%s: the size %s of dim '%s' is not in 1 .. 2147483647"):format(what, size, name))
      end
      out[#out + 1] = core.dim(name, n)
      T.scope[name] = out[#out]
    else
      local dim = T.scope[part]
      if not dim then
        diag.fail(diag.here "weight", 317, ("%s: dim '%s' has no size here\nhelp: write it as %s=SIZE"):format(what, part, part)
          .. diag.did_you_mean(part, lib.sorted_keys(T.scope)))
      end
      out[#out + 1] = dim
    end
  end
  return out
end

local raw_wrap = ops.wrap
function ops.wrap(id)
  local v = raw_wrap(id)
  if T then
    for _, d in ipairs(v.dims) do T.scope[ops.dim_name(d):match "^[^.]+"] = d end
  end
  return v
end

local function match_path(pattern, path)
  local p = pattern:gsub("[%-%.%+%[%]%(%)%$%^%%%?]", "%%%0"):gsub("%*", ".*")
  return path:find("^" .. p .. "$") or path:find("^" .. p .. "%..*$")
end
module.match_path = match_path

local function frozen(path)
  for i, p in ipairs(T.freeze) do
    if match_path(p, path) then
      T.freeze_used[i] = true
      return true
    end
  end
  return false
end

local function declare_var(path, dtype, dims, kind, init)
  local known = T.vars[path]
  if known then
    if not ops.same_dims(known.dims, dims) then
      diag.fail(diag.here "weight", 316, ("weight '%s' is %s here and %s at line %d"):format(path, ops.dims_str(dims),
        ops.dims_str(known.dims), known.loc.line or 0))
    end
    return
  end
  local loc = T.locs[#T.locs] or {}
  core.at("", loc.file or "", loc.line or 0)
  T.vars[path] = { dims = dims, loc = loc, id = core.var(path, dtype, dims, kind, init) }
  T.nvar = T.nvar + (kind == "weight" and 1 or 0)
  set_place()
end

-- Read variable `full` in the current segment; in a loop, outside of it.
local function read_var(full, dtype, dims, kind)
  local seg = segment()
  local prefix = seg.prefix
  local formal = "/" .. full
  if prefix ~= "" and full:sub(1, #prefix + 1) == prefix .. "." then formal = full:sub(#prefix + 2) end
  if not seg.reads[formal] then
    local loop = T.loop
    if loop then core.set_func(seg.func) end
    local id = core.read(formal, dtype, dims, kind)
    core.value_mark(id, kind == "weight" and 0 or ops.NOGRAD, "")
    local v = ops.wrap(id)
    rawset(v, "var", { full, dtype, dims, kind })
    seg.reads[formal] = v
    if loop then core.set_func(loop.body) end
  end
  return seg.reads[formal]
end

module.read_var = read_var

local inits <const> = { zero = true, one = true, const = true, normal = true, uniform = true }

-- The init of a weight as a table { kind, a, b } of a known kind and finite numbers.
local function check_init(init, what)
  if init == nil then return { kind = "normal", a = 0.0, b = 0.02 } end
  if type(init) == "number" then init = { kind = "normal", a = 0.0, b = init + 0.0 } end
  if type(init) == "string" then init = { kind = init } end
  if type(init) ~= "table" or not inits[init.kind] then
    diag.fail(diag.here "weight", 205, ("%s: its init is a standard deviation, \"zero\", \"one\", or { kind = \"normal\" | \"uniform\" | \"const\", a =, b = }")
      :format(what))
  end
  for _, k in ipairs { "a", "b" } do
    local x = init[k]
    if x ~= nil and (type(x) ~= "number" or x ~= x or math.abs(x) == math.huge) then
      diag.fail(diag.here "weight", 202, ("%s: %s of its init must be a finite number"):format(what, k))
    end
  end
  return init
end

-- mg.weight(name, dims, init, opts): a parameter. init: "zero", "one", a number (standard deviation) or a table
-- { kind = "normal" | "uniform" | "const", a =, b = }. The same name twice is one weight; "/name" is a name of its own,
-- shared by all layers. opts.decay: whether weight decay applies (default: two or more dims).
function module.weight(name, dims, init, opts)
  need_trace "mg.weight"
  if type(name) ~= "string" or not name:find "^/?[%a_][%w_]*[%w_.]*$" or #name > 128 then
    diag.fail(diag.here "weight", 601, "mg.weight: a name of letters, digits and _ is expected")
  end
  local ids = parse_dims(dims, "weight '" .. name .. "'")
  local full = name:sub(1, 1) == "/" and name:sub(2) or (#T.path > 0 and path_str() .. "." or "") .. name
  init = check_init(init, "weight '" .. name .. "'")
  if opts ~= nil and type(opts) ~= "table" then diag.fail(diag.here "weight", 202, "mg.weight: the fourth argument is a table such as { decay = false }") end
  local decay = #ids >= 2
  if opts and opts.decay ~= nil then decay = opts.decay end
  declare_var(full, "f", ids, "weight", { kind = init.kind, a = init.a, b = init.b, group = decay and "decay" or "plain", frozen = frozen(full) })
  return read_var(full, "f", ids, "weight")
end

-- A constant table, filled at start by the named function of (attributes): "cos" and "sin" of position times each of the
-- numbers `freq`, times `scale`; "iota" is 0, 1, 2, ...
function module.table_var(name, dtype, dims, fn, attrs)
  local list = {}
  for _, a in ipairs(attrs) do list[#list + 1] = a end
  declare_var(name, dtype, dims, "table", { kind = "table", table = fn, attrs = list })
  return read_var(name, dtype, dims, "table")
end

-- ---- layers -----------------------------------------------------------------------------------------------------

local Layer = { __metatable = false }

function module.is_layer(l) return type(l) == "table" and debug.getmetatable(l) == Layer end

-- A layer: kind, name (path part; nil: given by the parent), run(cfg, x, ctx, layer).
function module.layer(kind, name, cfg, loc, run, more)
  local l = more or {}
  l.kind, l.name, l.cfg, l.loc, l.run = kind, name, cfg, loc, run
  return setmetatable(l, Layer)
end

function module.copy(l, changes)
  local out = {}
  for k, v in next, l do out[k] = v end
  for k, v in next, changes do out[k] = v end
  return setmetatable(out, Layer)
end

local function apply(l, x, ...)
  need_trace(l.kind)
  local scope = T.scope
  T.scope = {}
  for _, v in ipairs { x, ... } do
    if ops.is_value(v) then
      for _, d in ipairs(v.dims) do T.scope[ops.dim_name(d):match "^[^.]+"] = d end
    end
  end
  local user = T.user
  T.user = l.user and 1 or 0
  push(l.name, l.loc)
  local out = l.run(l.cfg, x, T.ctx, l, ...)
  pop(l.name)
  T.scope, T.user = scope, user
  return out
end
module.apply = apply
Layer.__call = apply
Layer.__tostring = function(l) return l.kind end

-- A stack's elements are segments of their own.
function module.run_stack(stack, x)
  if T.loop then diag.fail(stack.loc, 314, "a stack inside of a loop") end
  end_segment()
  for i, l in ipairs(stack.elements) do
    local prefix = path_str() .. "." .. (i - 1)
    begin_segment(l.func_name or l.kind, prefix, i - 1)
    push(tostring(i - 1), l.loc)
    T.ctx.layer = i - 1
    local scope = T.scope
    T.scope = {}
    for _, d in ipairs(x.dims) do T.scope[ops.dim_name(d):match "^[^.]+"] = d end
    local user = T.user
    T.user = l.user and 1 or 0
    local y = l.run(l.cfg, x, T.ctx, l)
    T.user = user
    if not ops.is_value(y) then diag.fail(l.loc, 220, l.kind .. " must return a value") end
    T.scope = scope
    pop(tostring(i - 1))
    end_segment()
    x = y
  end
  return x
end

function module.segment_name(name) -- of the next segment between stacks
  if T.seg and T.seg.prefix == "" then end_segment() end
  T.next_name = name
end

-- ---- the trace --------------------------------------------------------------------------------------------------

local function finish(result, spec)
  if type(result) ~= "table" or not ops.is_value(result.loss_sum) or not ops.is_value(result.count) then
    diag.fail(spec.loc, 220, "forward must return { loss_sum = value, count = value }")
  end
  local last = T.segments[#T.segments]
  for _, k in ipairs { "loss_sum", "count" } do
    local v = result[k]
    if #v.dims ~= 0 then diag.fail(spec.loc, 220, ("%s must be a single number, it is %s\nhelp: mg.total(x)"):format(k, ops.dims_str(v.dims))) end
    if v.func ~= last.func then diag.fail(spec.loc, 220, k .. " must be computed after the last layer of a stack") end
    export(v, k)
  end
  if last.name:find "^part%d" then core.func_name(last.func, "loss") end
  for _, k in ipairs(lib.sorted_keys(result.metrics or {})) do export(result.metrics[k], k) end
end

-- Runs spec.forward; leaves Funcs, Vars, Regs and chain "fwd" in the Graph.
function module.trace(spec, ctx)
  T = {
    segments = {}, by_func = {}, regs = {}, nreg = 0, vars = {}, nvar = 0, path = {}, locs = { spec.loc }, scope = {},
    ctx = ctx, freeze = schema.get "train.freeze", freeze_used = {},
    user = spec.user and 1 or 0,
  }
  local b, s = core.dim("b", schema.get "batch.micro"), core.dim("s", schema.get "batch.seq")
  ctx.b, ctx.s = b, s
  local function input(name, id)
    return setmetatable({ id = id, func = 0, dims = { b, s }, dtype = "i32", io = name, flags = ops.NOGRAD }, ops.value_meta)
  end
  local batch = { tokens = input("tokens", -1), targets = input("targets", -2) }
  local regs = { reg_of(batch.tokens), reg_of(batch.targets) }
  if schema.get "data.packed" then -- lo: the first position of the token's document
    batch.lo = input("lo", -3)
    ctx.lo, regs[3] = batch.lo, reg_of(batch.lo)
  end
  local result = spec.forward(batch)
  finish(result, spec)
  if batch.lo and not T.lo_read then
    diag.fail(schema.loc "data.packed", 318, "data.packed: no attention layer of the model keeps documents apart\n"
      .. "help: give batch.lo to your own attention, or leave data.packed out")
  end
  if T.nvar == 0 then diag.fail(spec.loc, 315, "the model has no weights") end
  for i, p in ipairs(T.freeze) do
    if not T.freeze_used[i] then diag.fail(schema.loc "train.freeze", 603, ("train.freeze: '%s' matches no weight"):format(p)) end
  end
  local chain = core.chain("fwd", regs)
  for _, seg in ipairs(T.segments) do
    core.call(chain, seg.func, seg.layer, seg.prefix, seg.ins, seg.outs)
  end
  T = nil
end

-- ---- replace ----------------------------------------------------------------------------------------------------

-- Every layer below l with its path, as f(layer, path) -> layer; copies what changes.
local function map_layers(l, path, f)
  local function sub(c)
    local p = path
    if not c.transparent then p = path == "" and c.name or path .. "." .. (c.name or "?") end
    if not c.transparent then
      local r = f(c, p)
      if r ~= c then return r end
    end
    return map_layers(c, p, f)
  end
  local changed, out = false, {}
  for _, list in ipairs { "children", "elements" } do
    if l[list] then
      local new = {}
      for i, c in ipairs(l[list]) do
        if list == "elements" then
          local p = path .. "." .. (i - 1)
          local r = f(c, p)
          new[i] = r ~= c and r or map_layers(c, p, f)
        else
          new[i] = sub(c)
        end
        changed = changed or new[i] ~= c
      end
      out[list] = new
    end
  end
  return changed and module.copy(l, out) or l
end

function module.replace(model, pattern, new)
  local loc = diag.here "replace"
  if not module.is_layer(model) then diag.fail(loc, 202, "mg.replace: a model or layer is expected first") end
  if type(pattern) ~= "string" then diag.fail(loc, 202, "mg.replace: a path such as \"layers.3.mlp\" is expected") end
  if type(new) ~= "function" and not module.is_layer(new) then
    diag.fail(loc, 202, "mg.replace: a layer, or a function that makes one of the old one, is expected")
  end
  local p = "^" .. pattern:gsub("[%-%.%+%[%]%(%)%$%^%%%?]", "%%%0"):gsub("%*", "[^.]+") .. "$"
  local tail = "%." .. p:sub(2)
  local n, names = 0, {}
  local out = map_layers(model, "", function(l, path)
    names[#names + 1] = path
    if not path:find(p) and not (pattern:sub(1, 1) == "*" and path:find(tail)) then return l end
    n = n + 1
    local r = module.is_layer(new) and new or new(l)
    if not module.is_layer(r) then diag.fail(loc, 220, "mg.replace: the function must return a layer") end
    return module.copy(r, { name = l.name })
  end)
  if n == 0 then
    diag.fail(loc, 603, ("mg.replace: no layer matches '%s'"):format(pattern) .. diag.did_you_mean(pattern, names))
  end
  return out
end

return module
