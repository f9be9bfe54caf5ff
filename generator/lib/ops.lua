-- ops.lua: values, op blocks, and ops as functions on values.
--
-- A value in Lua is a small table { id, func, dims, dtype } with operators. Calling an op appends a node to the
-- Func that is being traced. A value of another Func becomes an input of this one (module.lua follows it).
local lib <const> = ...
local core <const>, diag <const> = lib.core, lib.diag

local ops = { blocks = {}, order = {}, unary = {}, fn = {}, value_meta = {} }
local Value <const> = ops.value_meta

-- Flags of ValueFlags and OpFlags in megagen.h.
ops.RESID, ops.ROWSTAT, ops.MARKED, ops.NOGRAD = 1, 2, 4, 8
local op_flag <const> = { body = 8, kernel = 16, nograd = 64, mixes = 128 }

-- ---- values -----------------------------------------------------------------------------------------------------

local metatable <const> = debug.getmetatable -- sees through __metatable

function ops.is_value(v) return type(v) == "table" and metatable(v) == Value end

function ops.wrap(id)
  local dtype, dims, func, flags = core.value(id)
  return setmetatable({ id = id, dtype = dtype, dims = dims, func = func, flags = flags }, Value)
end
local function wrap(id) return ops.wrap(id) end -- module.lua puts its own around it

local function dim_name(d) return (core.dim_info(d)) end
local function dim_size(d) return (select(2, core.dim_info(d))) end
ops.dim_name, ops.dim_size = dim_name, dim_size

local function dims_str(dims)
  local part = {}
  for i, d in ipairs(dims) do part[i] = dim_name(d) .. "=" .. dim_size(d) end
  return "[" .. table.concat(part, " ") .. "]"
end
ops.dims_str = dims_str

local function need_value(v, what)
  if not ops.is_value(v) then
    diag.fail(diag.here(what), 301, ("%s: a value is expected, got %s"):format(what, type(v)))
  end
end
ops.need_value = need_value

-- The position of a dim of v, given by name, by position (negative from the end) or by id.
local function dim_pos(v, d, what)
  need_value(v, what)
  if math.type(d) == "integer" then
    local i = d < 0 and #v.dims + 1 + d or d
    if v.dims[i] then return i end
  else
    for i, x in ipairs(v.dims) do
      if dim_name(x) == d then return i end
    end
    for i, x in ipairs(v.dims) do -- "d" also finds "d.1"
      if dim_name(x):match "^[^.]+" == d then return i end
    end
  end
  diag.fail(diag.here(what), 307, ("%s: %s has no dim %s"):format(what, dims_str(v.dims), tostring(d)))
end

local function same_dims(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end
ops.same_dims = same_dims

-- ---- nodes ------------------------------------------------------------------------------------------------------

-- Values from outside of the current Func become its inputs; set by module.lua.
ops.import = function(v) return v end
ops.user_line = function() end

local function node(name, ins, attrs, types)
  ops.user_line(ops.blocks[name].view and name or nil)
  local ids = {}
  for i, v in ipairs(ins) do ids[i] = v and ops.import(v).id or 0 end
  local first, n, id = core.node(ops.blocks[name].id, ids, attrs or {}, types)
  local out = {}
  for i = 1, n do
    out[i] = wrap(first + i - 1)
    local rowstat = ops.blocks[name].saved
    if rowstat and rowstat[i] then core.value_mark(first + i - 1, ops.ROWSTAT) end
  end
  return table.unpack(out)
end
ops.node = node

-- ---- op blocks --------------------------------------------------------------------------------------------------

local block_keys <const> = { "doc", "sig", "body", "kernel", "attrs", "vjp", "ref", "flops", "split", "whole",
  "inplace", "nograd", "mixes", "eval" }

-- Names and flags of a signature's ports, for messages and FLOPs; C parses it for good.
function ops.ports(sig)
  local ins, outs = sig:match "^(.*)%->(.*)$"
  local function list(s)
    local out = {}
    for head, dims, tail in (s or ""):gmatch "([^,%[]+)%[([^%]]*)%]([?:%w]*)" do
      local names = {}
      for d in dims:gmatch "%S+" do names[#names + 1] = d end
      out[#out + 1] = {
        name = head:match "([%w_]+)%s*$", dims = names,
        saved = head:match "^%s*saved%s" ~= nil, optional = tail:find("?", 1, true) ~= nil,
      }
    end
    return out
  end
  return list(ins), list(outs)
end

local function check_attrs(b, given)
  local out = {}
  local known = b.attrs or {}
  for _, k in ipairs(lib.sorted_keys(given or {})) do
    if known[k] == nil and k ~= "sum" then
      diag.fail(diag.here(k), 305, ("%s has no attribute '%s'"):format(b.name, tostring(k))
        .. diag.did_you_mean(tostring(k), lib.sorted_keys(known)))
    end
  end
  for _, k in ipairs(lib.sorted_keys(known)) do
    local v = known[k]
    if given and given[k] ~= nil then v = given[k] end
    if v == "required" then diag.fail(diag.here(b.name), 305, b.name .. ": attribute '" .. k .. "' is missing") end
    if math.type(known[k]) == "float" and math.type(v) == "integer" then v = v + 0.0 end
    out[#out + 1] = { k, v }
  end
  return out
end

-- The op as a function: operands in the order of its signature, then a table of attributes.
local function op_function(b)
  local ins = ops.ports(b.sig or "")
  local need = 0
  for i, p in ipairs(ins) do
    if not p.optional then need = i end
  end
  return function(...)
    ops.user_line(b.name)
    local arg, n = { ... }, select("#", ...)
    local attrs
    if type(arg[n]) == "table" and not ops.is_value(arg[n]) then attrs, arg[n], n = arg[n], nil, n - 1 end
    if n < need or n > #ins then
      diag.fail(diag.here(b.name), 301, ("%s takes %d operands, got %d\nnote: %s: %s"):format(b.name, need, n, b.name, b.sig))
    end
    local list = {}
    for i = 1, #ins do
      if not ops.is_value(arg[i]) and not (ins[i].optional and not arg[i]) then
        diag.fail(diag.here(b.name), 301, ("%s: operand %s must be a value, got %s"):format(b.name, ins[i].name, type(arg[i])))
      end
      list[i] = arg[i] or false
    end
    while #list > 0 and list[#list] == false do list[#list] = nil end
    for i = 2, #list do -- x[..], y[..]: dims that nobody named become those of the first operand
      if list[i] and #ins[i].dims == 1 and ins[i].dims[1] == ".." and #ins[1].dims == 1 and ins[1].dims[1] == ".." then
        list[i] = ops.adopt(list[1], list[i])
        list[1] = ops.adopt(list[i], list[1])
      end
    end
    return node(b.name, list, check_attrs(b, attrs))
  end
end

local function block_error(name, msg)
  diag.fail(diag.here(name), 305, ("op '%s': %s"):format(name, msg))
end

-- kernel = "file.h" of a user's op: the file stands beside the spec and goes into the output.
local kernel_files = {}
local function user_kernel(name, file)
  if type(file) ~= "string" or not file:find "^[%a_][%w_]*%.h$" then
    block_error(name, "kernel is the name of a file beside the spec, such as \"" .. name .. ".h\"")
  end
  if kernel_files[file] then return end
  kernel_files[file] = true
  if core.asset("kernels/cpu/" .. file) then block_error(name, ("megagen has a kernel file '%s'"):format(file)) end
  local dir = (lib.running() or ""):match "^(.*/)" or ""
  local text, why = core.read_spec(dir .. file)
  if not text then block_error(name, ("%s%s: %s"):format(dir, file, why)) end
  if not text:find("/*@kernel", 1, true) then block_error(name, file .. " has no /*@kernel block") end
  core.kernel_file(file, text)
end

-- op "name" { ... }: see generator/README.md. Used by our rules and by a spec's mg.op.
function ops.declare(name, b, user)
  if type(name) ~= "string" or not name:find "^[%a][%w_]*$" or #name > 64 then
    diag.fail(diag.here(), 601, "an op's name is letters, digits and _, at most 64")
  end
  if type(b) ~= "table" then block_error(name, "a table is expected") end
  local known = {}
  for _, k in ipairs(block_keys) do known[k] = true end
  for _, k in ipairs(lib.sorted_keys(b)) do
    if not known[k] then block_error(name, ("no key '%s'"):format(tostring(k)) .. diag.did_you_mean(tostring(k), block_keys)) end
  end
  if user and ops.blocks[name] then
    block_error(name, "there is an op of this name" .. (ops.blocks[name].user and " in this spec" or " in megagen"))
  end
  local structural = core.op_find(name) > 0
  if not structural and not b.sig then block_error(name, "`sig` is missing") end
  if not structural and not b.body and not b.kernel then block_error(name, "it needs a `body` or a `kernel`") end
  if user and b.kernel then user_kernel(name, b.kernel) end
  local flags = (b.kernel and op_flag.kernel or 0) | (b.nograd and op_flag.nograd or 0) | (b.mixes and op_flag.mixes or 0)
  local at = diag.here()
  local info = debug.getinfo(3, "Sl") or {}
  b.name, b.user = name, user
  b.id = core.op_add {
    name = name, sig = b.sig, body = b.body, flags = flags, doc = b.doc, vjp = b.vjp, ref = b.ref, flops = b.flops,
    split = b.split, inplace = b.inplace, whole = b.whole,
    file = user and at.file or (info.source or ""):sub(2), line = user and at.line or info.currentline,
  }
  if b.sig then
    local _, outs = ops.ports(b.sig)
    for i, p in ipairs(outs) do
      if p.saved then b.saved = b.saved or {}; b.saved[i] = true end
    end
  end
  ops.blocks[name] = b
  ops.order[#ops.order + 1] = name
  ops.fn[name] = op_function(b)
  if b.body and b.sig:find "^x%[%.%.%] %-> y%[%.%.%]$" and not b.attrs then ops.unary[#ops.unary + 1] = name end
  return ops.fn[name]
end

-- ---- views ------------------------------------------------------------------------------------------------------

local view = {}
ops.view = view

function view.slice(v, d, from, len, name)
  local at = dim_pos(v, d, "slice")
  local dim = v.dims[at]
  if from == 0 and len == dim_size(dim) and not name then return v end
  local base = name or dim_name(dim):match "^[^.]+"
  return node("slice", { v }, { { "dim", { dim = dim } }, { "at", from }, { "len", { dim = core.dim(base, len) } } })
end

function view.split(v, d, names) -- names: { { "h", 4 }, { "e", 32 } }
  local dim, to = v.dims[dim_pos(v, d, "split")], {}
  for i, n in ipairs(names) do to[i] = type(n) == "table" and core.dim(n[1], n[2]) or n end
  return node("split", { v }, { { "dim", { dim = dim } }, { "dims", { dims = to } } })
end

function view.merge(v, from, to, name) -- positions from .. to become one dim
  local dims, size = {}, 1
  for i = from, to do
    dims[#dims + 1] = v.dims[i]
    size = size * dim_size(v.dims[i])
  end
  local dim = type(name) == "number" and name or core.dim(name, size)
  if #dims == 1 then return view.rename(v, from, dim) end
  return node("merge", { v }, { { "dims", { dims = dims } }, { "dim", { dim = dim } } })
end

-- A dim of size 1 goes away.
function view.drop(v, d)
  local at = dim_pos(v, d, "drop")
  if at == 1 then
    if #v.dims == 1 then return v end
    return node("merge", { v }, { { "dims", { dims = { v.dims[1], v.dims[2] } } }, { "dim", { dim = v.dims[2] } } })
  end
  return node("merge", { v }, { { "dims", { dims = { v.dims[at - 1], v.dims[at] } } }, { "dim", { dim = v.dims[at - 1] } } })
end

function view.transpose(v, order) -- ids, in the new order
  if same_dims(v.dims, order) then return v end
  return node("transpose", { v }, { { "dims", { dims = order } } })
end

function view.rename(v, d, to)
  local dim = v.dims[dim_pos(v, d, "rename")]
  if type(to) == "string" then to = core.dim(to, dim_size(dim)) end
  if dim == to then return v end
  return node("rename", { v }, { { "dim", { dim = dim } }, { "to", { dim = to } } })
end

function view.concat(list, d, to)
  local at = dim_pos(list[1], d, "concat")
  local size, base = 0, dim_name(list[1].dims[at]):match "^[^.]+"
  for _, v in ipairs(list) do size = size + dim_size(v.dims[at]) end
  if type(to) ~= "number" then to = core.dim(to or base, size) end
  return node("concat", list, { { "dim", { dim = list[1].dims[at] } }, { "to", { dim = to } } })
end

-- ---- dims without a name of their own -----------------------------------------------------------------------------

ops.auto = {} -- dims whose name nobody chose

-- y with dims that nobody named renamed to those of x at the same place from the end.
local function adopt(x, y)
  for k = 0, math.min(#x.dims, #y.dims) - 1 do
    local a, b = x.dims[#x.dims - k], y.dims[#y.dims - k]
    if a ~= b and dim_size(a) == dim_size(b) and ops.auto[b] then y = view.rename(y, #y.dims - k, a) end
  end
  return y
end
ops.adopt = adopt

-- ---- operators --------------------------------------------------------------------------------------------------

local function is_suffix(long, short)
  local off = #long - #short
  for i = 1, #short do
    if long[off + i] ~= short[i] then return false end
  end
  return true
end

local function is_prefix(long, short)
  for i = 1, #short do
    if long[i] ~= short[i] then return false end
  end
  return true
end

local symbol <const> = { add = "+", sub = "-", mul = "*", div = "/" }

local function mismatch(name, x, y)
  local msg = ("x %s y: dims do not match: x %s, y %s"):format(symbol[name], dims_str(x.dims), dims_str(y.dims))
  local help = ""
  for i = 1, math.min(#x.dims, #y.dims) do
    local a, b = x.dims[i], y.dims[i]
    if a ~= b and #x.dims == #y.dims then
      if dim_size(a) == dim_size(b) then
        help = ("\nhelp: '%s' and '%s' have one size and two names; mg.rename(y, \"%s\", \"%s\") says they are the same")
          :format(dim_name(a), dim_name(b), dim_name(b), dim_name(a))
      else
        help = ("\nnote: %s is %d in x, %s is %d in y"):format(dim_name(a), dim_size(a), dim_name(b), dim_size(b))
      end
      break
    end
  end
  diag.fail(diag.here(), 313, msg .. help)
end

local function with_number(name, x, k, reversed)
  k = k + 0.0
  if name == "add" then return ops.fn.offset(x, { by = k }) end
  if name == "mul" then return ops.fn.scale(x, { by = k }) end
  if name == "sub" then return reversed and ops.fn.offset(ops.fn.neg(x), { by = k }) or ops.fn.offset(x, { by = -k }) end
  if not reversed then return ops.fn.scale(x, { by = 1.0 / k }) end
  return ops.fn.scale(ops.fn.recip(x), { by = k })
end

-- Pointwise, with one operand repeated along the dims it lacks: the leading ones (a bias) or the inner ones (a
-- row scalar).
local function pointwise(name, x, y)
  ops.user_line()
  if type(x) == "number" then return with_number(name, y, x, true) end
  if type(y) == "number" then return with_number(name, x, y, false) end
  if not ops.is_value(x) or not ops.is_value(y) then
    diag.fail(diag.here(), 313, ("a value and a %s cannot be combined with `%s`"):format(
      type(ops.is_value(x) and y or x), symbol[name]))
  end
  if #x.dims < #y.dims then
    if name == "add" or name == "mul" then return pointwise(name, y, x) end
    if name == "sub" then return pointwise("add", ops.fn.neg(y), x) end
    return pointwise("mul", ops.fn.recip(y), x)
  end
  if not is_prefix(x.dims, y.dims) then
    y = adopt(x, y)
    x = adopt(y, x)
  end
  if same_dims(x.dims, y.dims) then return ops.fn[name](x, y) end
  if name == "sub" then return pointwise("add", x, ops.fn.neg(y)) end
  if name == "div" then return pointwise("mul", x, ops.fn.recip(y)) end
  local suffix, n = is_suffix(x.dims, y.dims), #y.dims
  if not suffix and not is_prefix(x.dims, y.dims) then mismatch(name, x, y) end
  local rest = #x.dims - n -- dims that y lacks
  if suffix then
    if n == 1 then return ops.fn[name .. "_col"](x, y) end
    local flat = ops.fn[name .. "_col"](view.merge(x, rest + 1, #x.dims, "_m"), view.merge(y, 1, n, "_m"))
    return view.split(flat, -1, y.dims)
  end
  if rest == 1 then return ops.fn[name .. "_row"](x, y) end
  local inner = table.move(x.dims, n + 1, #x.dims, 1, {})
  return view.split(ops.fn[name .. "_row"](view.merge(x, n + 1, #x.dims, "_m"), y), -1, inner)
end
ops.pointwise = pointwise

Value.__add = function(x, y) return pointwise("add", x, y) end
Value.__sub = function(x, y) return pointwise("sub", x, y) end
Value.__mul = function(x, y) return pointwise("mul", x, y) end
Value.__div = function(x, y) return pointwise("div", x, y) end
Value.__unm = function(x) return ops.fn.neg(x) end
Value.__tostring = function(x) return "value " .. dims_str(x.dims) end
Value.__metatable = false
Value.__newindex = function() diag.fail(diag.here(), 314, "values cannot be changed") end

-- matmul(a, b, names): contraction over the dims named; without names over all dims they share.
function ops.matmul(a, b, names)
  need_value(a, "matmul")
  need_value(b, "matmul")
  if names ~= nil and type(names) ~= "string" then
    diag.fail(diag.here "matmul", 305, "matmul: the dims to sum over are a string such as \"d\"")
  end
  local sum = {}
  if names then
    for n in names:gmatch "%S+" do sum[#sum + 1] = a.dims[dim_pos(a, n, "matmul")] end
  else
    for _, d in ipairs(a.dims) do
      for _, e in ipairs(b.dims) do
        if d == e then sum[#sum + 1] = d end
      end
    end
  end
  if #sum == 0 then
    diag.fail(diag.here "matmul", 303, ("matmul: %s and %s share no dim to sum over"):format(dims_str(a.dims), dims_str(b.dims)))
  end
  return ops.contract(a, b, sum)
end

function ops.contract(a, b, sum)
  return node("matmul", { a, b }, { { "sum", { dims = sum } } })
end

-- ---- calls from C -----------------------------------------------------------------------------------------------

-- vjp(c): c.ins, c.outs, c.cot (nil = none), c.attr -> the cotangent of each operand, nil or false = none.
function lib.run_vjp(fn, ins, outs, cots, attr)
  local function values(ids)
    local out = {}
    for i, id in ipairs(ids) do out[i] = id > 0 and wrap(id) or false end
    return out
  end
  lib.in_vjp = true
  local grads = fn { ins = values(ins), outs = values(outs), cot = values(cots), attr = attr }
  lib.in_vjp = false
  local out = {}
  for i = 1, #ins do out[i] = grads[i] and grads[i].id or 0 end
  return out
end

-- flops(size, attr): size[name] of each dim of the signature.
function lib.run_flops(fn, sig, sizes, attr)
  local size = {}
  for i, p in ipairs((ops.ports(sig))) do
    for k, name in ipairs(p.dims) do
      if sizes[i] and sizes[i][k] and name ~= ".." then size[name] = sizes[i][k] end
    end
  end
  return fn(size, attr) + 0.0
end

-- ---- rules ------------------------------------------------------------------------------------------------------

-- Our op blocks: every file of generator/rules, in order of name. In them `op "name" { ... }` declares.
function ops.load_rules()
  local env = setmetatable({
    op = function(name) return function(b) return ops.declare(name, b) end end,
    node = node, view = view, ops = ops, contract = ops.contract, dim_size = dim_size,
  }, { __index = _G })
  for _, name in ipairs { "slice", "split", "merge", "transpose", "concat", "rename", "broadcast", "matmul", "cast", "copy" } do
    ops.blocks[name] = { name = name, id = core.op_find(name), view = true }
  end
  for _, path in ipairs(core.assets("generator/rules", ".lua")) do
    lib.is_lib["@" .. path] = true
    assert(load(core.asset(path), "@" .. path, "t", env))()
  end
end

return ops
