-- schema.lua: every key of a spec, its checks, and where each value came from.
--
-- A row: name, type, default, unit, binds, help. Help, --print-config, the manual and the generated trainer's
-- table of keys are all made from these rows. Layers use the same rows for their own settings (check_table).
local lib <const> = ...
local core <const>, diag <const> = lib.core, lib.diag

local schema = { rows = {}, by_name = {} }

local function key(name, type, default, binds, help, more)
  local row = more or {}
  row.name, row.type, row.default, row.binds, row.help = name, type, default, binds, help
  schema.rows[#schema.rows + 1] = row
  schema.by_name[name] = row
end

-- default "derived:..." is filled in by resolve(); the text says how.
key("name", "str", "derived: the spec's file", "compile", "name of the model and of its folder in out/")
key("family", "str", "none", "compile", "names of tensors on disk", { one_of = { "none", "gpt2", "llama", "qwen2" } })

key("batch.micro", "int", 8, "compile", "rows of one micro batch", { min = 1, max = 1 << 20 })
key("batch.global", "int", "derived: batch.micro", "run", "rows of one step; a multiple of batch.micro", { min = 1, max = 1 << 30 })
key("batch.seq", "int", "derived: ctx of the model", "compile", "tokens of a row", { min = 1, max = 1 << 24 })
key("batch.chunk", "int", 0, "compile", "tokens of one chunk of head and loss; 0 = chosen by the size of the logits", { min = 0 })

for _, row in ipairs {
  { "dp", "data-parallel replicas" }, { "tp", "ranks that share each layer's matrices" }, { "cp", "ranks that share a sequence" },
  { "pp", "pipeline stages" }, { "ep", "ranks that share the experts" }, { "virtual", "chunks of layers a pipeline stage" },
} do
  key("parallel." .. row[1], "int", 1, "compile", row[2], { min = 1, only = 1 })
end
key("parallel.zero", "int", 0, "compile", "sharding of optimizer state, gradients and weights over dp", { min = 0, max = 3, only = 0 })
key("parallel.sp", "bool", false, "compile", "sequence parallelism beside tp", { only = false })

key("precision.compute", "str", "f32", "compile", "type of weights and activations", { one_of = { "f32", "bf16", "f64" } })
key("precision.master", "str", "derived: f32, f64 with compute f64", "compile", "type of the optimizer's own weights", { one_of = { "f32", "f64" } })
key("precision.grads", "str", "derived: f32, f64 with compute f64", "compile", "type gradients are summed in", { one_of = { "f32", "f64" } })
key("precision.moments", "str", "derived: f32, f64 with compute f64", "compile", "type of the optimizer's moments", { one_of = { "f32", "f64" } })

key("remat", "str", "none", "compile", "activations computed again in the backward pass", { one_of = { "none", "selective", "full" } })
key("fuse", "bool", true, "compile", "merge pointwise and row ops into one kernel; the numbers are the same without")
key("target", "str", "cpu", "compile", "machine to write code for", { one_of = { "cpu" } })
key("cpu", "str", "native", "compile", "feature level of the processor", { one_of = { "native", "avx512", "avx2", "generic" } })

key("data.train", "list", {}, "run", "prefixes of .bin/.idx files; path or path:weight")
key("data.valid", "list", {}, "run", "the same for evaluation")
key("data.tokenizer", "str", "bytes", "run", "what the ids stand for", { one_of = { "bytes" } })
key("data.seed", "int", 1, "run", "order of the samples", { min = 0 })
key("data.eod_mask_loss", "bool", false, "run", "no loss where the input is a document's last token")
key("data.packed", "bool", false, "compile", "attention stays within a document; positions count from the start of the row")

key("train.optimizer", "str", "adamw", "compile", "update rule", { one_of = { "adamw", "sgd" } })
key("train.beta1", "num", 0.9, "compile", "decay of the first moment", { min = 0, below = 1 })
key("train.beta2", "num", 0.95, "compile", "decay of the second moment", { min = 0, below = 1 })
key("train.eps", "num", 1e-8, "compile", "added to the root of the second moment", { min = 1e-30 })
key("train.momentum", "num", 0.0, "compile", "of sgd", { min = 0, below = 1 })
key("train.lr", "num", 0.001, "run", "largest learning rate", { min = 0 })
key("train.schedule", "str", "cosine", "run", "course of the learning rate", { one_of = { "constant", "linear", "cosine", "inverse_sqrt", "wsd" } })
key("train.warmup", "int", 0, "run", "steps from warmup_init to lr", { min = 0 })
key("train.warmup_init", "num", 0.0, "run", "learning rate at the start of the warm-up", { min = 0 })
key("train.floor", "num", 0.1, "run", "smallest learning rate, as a share of lr", { min = 0, max = 1 })
key("train.decay", "int", 0, "run", "step at which the floor is reached; 0 = steps", { min = 0 })
key("train.wsd_decay", "int", 0, "run", "steps of the decay at the end of wsd; 0 = a fifth of decay", { min = 0 })
key("train.wsd_shape", "str", "exponential", "run", "shape of that decay", { one_of = { "linear", "cosine", "exponential", "minus_sqrt" } })
key("train.weight_decay", "num", 0.1, "run", "decay of weights with two or more dims", { min = 0 })
key("train.weight_decay_end", "num", -1.0, "run", "decay at the last step; -1 = the same")
key("train.weight_decay_schedule", "str", "constant", "run", "course of the decay", { one_of = { "constant", "linear", "cosine" } })
key("train.clip", "num", 1.0, "run", "largest norm of the gradient; 0 = no clipping", { min = 0 })
key("train.steps", "int", 1000, "run", "updates", { min = 0 })
key("train.loss_mean", "str", "token", "compile", "token: sum over the global batch by its targets; microbatch: mean of means", { one_of = { "token", "microbatch" } })
key("train.freeze", "list", {}, "compile", "paths of weights that are not trained; * stands for any part")
key("train.init", "str", "random", "run", "random, or ckpt:DIR for weights only")
key("train.seed", "int", 1, "run", "initialisation and dropout", { min = 0 })

key("eval.every", "int", 0, "run", "steps between evaluations; 0 = only by the word eval", { min = 0 })
key("eval.batches", "int", 20, "run", "micro batches of one evaluation; 0 = all", { min = 0 })
key("save.every", "int", 0, "run", "steps between checkpoints; 0 = only at the end", { min = 0 })
key("save.keep", "int", 3, "run", "checkpoints that stay", { min = 1 })
key("save.interval", "time", "0", "run", "time between checkpoints; 0 = none")
key("save.shard", "size", "4GiB", "run", "largest file of a checkpoint")
key("log.every", "int", 1, "run", "steps between lines and metrics", { min = 1 })
key("sample.every", "int", 0, "run", "steps between samples during training; 0 = none", { min = 0 })
key("sample.prompt", "str", "", "run", "what a sample starts with")
key("sample.tokens", "int", 200, "run", "length of a sample in tokens", { min = 1 })
key("sample.temperature", "num", 0.8, "run", "0 = always the likeliest token", { min = 0 })
key("sample.top_k", "int", 0, "run", "draw from the k likeliest tokens; 0 = all", { min = 0 })

-- ---- checks -----------------------------------------------------------------------------------------------------

local function show(v)
  if type(v) == "string" then return '"' .. v .. '"' end
  if type(v) == "number" or type(v) == "boolean" then return tostring(v) end
  return "a " .. type(v)
end

local function choices(row)
  local out = {}
  for i, s in ipairs(row.one_of) do out[i] = '"' .. s .. '"' end
  return table.concat(out, ", ")
end

local word <const> = { int = "a whole number", num = "a number", bool = "true or false", str = "a string", list = "a list of strings",
  size = "a size such as \"4GiB\"", time = "a time such as \"30m\"", table = "a table", layer = "a layer" }

-- Sizes and times are those that the trainer reads (runtime/conf.c): 512MiB, 4GB; 90, 30m, 1h30m.
local function set(list)
  local out = {}
  for _, s in ipairs(list) do out[s] = true end
  return out
end
local size_unit <const> = set { "", "B", "kB", "KB", "MB", "GB", "TB", "K", "M", "G", "T", "KiB", "MiB", "GiB", "TiB" }
local time_unit <const> = set { "ms", "s", "m", "h", "d" }

local function is_size(s)
  local unit = s:match "^%d+%.?%d*(%a*)$"
  return unit and size_unit[unit]
end

local function is_time(s)
  local rest = s:gsub("%d+%.?%d*(%a+)", function(unit) return time_unit[unit] and "" or nil end)
  return s ~= "" and rest == "" or s:find "^%d+%.?%d*$"
end

-- The largest whole number that a double holds with all below it: the trainer reads numbers as doubles.
local INT_MAX <const> = 1 << 53

-- nil if v is a value of the row, else code and message. what: how to name the key.
local function check_value(row, v, what)
  local t = row.type
  local function wrong() return 202, ("%s is %s; %s is expected"):format(what, show(v), word[t]) end
  if t == "int" then
    if math.type(v) == "float" then
      return 107, ("%s = %s is a float; %s\nhelp: if it comes from a division, write a // b"):format(what, tostring(v),
        row.shape and "shapes are integers" or "a whole number is expected")
    end
    if math.type(v) ~= "integer" then return wrong() end
    if v > INT_MAX or v < -INT_MAX then return 203, ("%s = %d is beyond 2^53, the largest whole number of a key"):format(what, v) end
  elseif t == "num" then
    if type(v) ~= "number" then return wrong() end
    if v ~= v or v == math.huge or v == -math.huge then return 203, ("%s = %s is not finite"):format(what, v ~= v and "nan" or v > 0 and "inf" or "-inf") end
  elseif t == "bool" then
    if type(v) ~= "boolean" then return wrong() end
  elseif t == "list" then
    if type(v) == "string" then return end
    if type(v) ~= "table" then return wrong() end
    for _, s in ipairs(v) do
      if type(s) ~= "string" then return wrong() end
    end
  elseif t == "any" then
    return
  elseif t == "table" or t == "layer" then
    if type(v) ~= "table" then return wrong() end
  elseif type(v) ~= "string" and not ((t == "size" or t == "time") and math.type(v) == "integer") then
    return wrong()
  end
  if t == "size" and not is_size(tostring(v)) or t == "time" and not is_time(tostring(v)) then return wrong() end
  if type(v) == "string" and (#v > 4096 or v:find "[%z\1-\31\127]") then
    return 202, what .. " holds control characters or is longer than 4096 bytes"
  end
  if row.one_of then
    for _, s in ipairs(row.one_of) do
      if s == v then return end
    end
    return 205, ("%s = %s is not one of %s"):format(what, show(v), choices(row)) .. diag.did_you_mean(tostring(v), row.one_of)
  end
  if type(v) == "number" then
    if row.min and v < row.min then return 203, ("%s = %s is below %s"):format(what, tostring(v), tostring(row.min)) end
    if row.max and v > row.max then return 203, ("%s = %s is above %s"):format(what, tostring(v), tostring(row.max)) end
    if row.below and v >= row.below then return 203, ("%s = %s must be below %s"):format(what, tostring(v), tostring(row.below)) end
  end
  if row.only ~= nil and v ~= row.only then
    return 501, ("%s = %s: one rank only so far\nhelp: leave it out, or write %s"):format(what, tostring(v), tostring(row.only))
  end
end

-- Checks a table against rows (name -> row). Returns a copy with defaults. loc: the call, see diag.find_key.
function schema.check_table(what, rows, t, loc, errors, list_part)
  local own, out, meant = errors or {}, {}, {}
  if type(t) ~= "table" then
    diag.fail(loc, 202, ("%s: a table is expected, got %s"):format(what, show(t)))
  end
  for _, k in ipairs(lib.sorted_keys(t)) do
    if math.type(k) == "integer" and list_part then
      out[k] = t[k]
    elseif not rows[k] then
      local near = diag.nearest(tostring(k), lib.sorted_keys(rows))
      if near then meant[near] = true end
      own[#own + 1] = { loc = diag.find_key(loc, k), code = 204, msg = ("%s has no key '%s'"):format(what, tostring(k))
        .. diag.did_you_mean(tostring(k), lib.sorted_keys(rows)) }
    else
      local code, msg = check_value(rows[k], t[k], k)
      if code then
        own[#own + 1] = { loc = diag.find_key(loc, k, true), code = code, msg = msg }
      else
        out[k] = t[k]
      end
    end
  end
  for _, k in ipairs(lib.sorted_keys(rows)) do
    if rows[k].required and t[k] == nil and not meant[k] then
      own[#own + 1] = { loc = loc.name and diag.find_name(loc, loc.name) or loc, code = 206, msg = ("%s: '%s' is missing"):format(what, k) }
    end
    if out[k] == nil then out[k] = rows[k].default end
  end
  if not errors then diag.fail_all(own) end
  return out
end

-- ---- overrides --------------------------------------------------------------------------------------------------

-- The value that a word of the command line means for this row, or nil, code, message.
function schema.parse_word(row, s)
  local t, v = row.type, s
  if t == "int" then
    v = math.tointeger(tonumber(s)) or tonumber(s)
    if v == nil then return nil, 202, ("%s=%s: %s is expected"):format(row.name, s, word[t]) end
  elseif t == "num" then
    v = tonumber(s)
    if v == nil then return nil, 202, ("%s=%s: %s is expected"):format(row.name, s, word[t]) end
    v = v + 0.0
  elseif t == "bool" then
    if s ~= "true" and s ~= "false" then return nil, 202, ("%s=%s: true or false is expected"):format(row.name, s) end
    v = s == "true"
  elseif t == "list" then
    v = {}
    for part in s:gmatch "[^,]+" do v[#v + 1] = part end
  end
  local code, msg = check_value(row, v, row.name)
  if code then return nil, code, msg end
  return v
end

-- Overrides given on the command line: key -> text. Keys of the schema and names of mg.param.
schema.overrides = {}
schema.override_order = {}
function schema.set_overrides(list)
  for _, s in ipairs(list) do
    local k, v = s:match "^([%w_.%-]+)=(.*)$"
    if not k then diag.fail({}, 207, ("'%s': key=value is expected"):format(s)) end
    if schema.overrides[k] == nil then schema.override_order[#schema.override_order + 1] = k end
    schema.overrides[k] = v
  end
end

-- mg.param(name, default): a value that the command line may set. Its type is that of the default.
schema.params, schema.param_order = {}, {}
function schema.param(name, default)
  local loc = diag.here "param"
  if type(name) ~= "string" or not name:find "^[%a_][%w_]*$" or #name > 64 then
    diag.fail(loc, 601, "mg.param: a name of letters, digits and _ is expected")
  end
  if schema.by_name[name] then diag.fail(loc, 601, ("mg.param: '%s' is a key of the schema"):format(name)) end
  local kind = math.type(default) == "integer" and "int" or math.type(default) == "float" and "num"
    or type(default) == "boolean" and "bool" or type(default) == "string" and "str"
  if not kind then diag.fail(loc, 202, ("mg.param '%s': the default must be a number, a string or a boolean"):format(name)) end
  local known = schema.params[name]
  if known and known.default ~= default then
    diag.fail(loc, 209, ("mg.param '%s' has the default %s at line %d"):format(name, show(known.default), known.loc.line or 0))
  end
  if not known then
    known = { name = name, type = kind, default = default, value = default, loc = loc, origin = "default" }
    local s = schema.overrides[name]
    if s then
      local v, code, msg = schema.parse_word(known, s)
      if code then diag.fail({ file = "command line" }, code, msg) end
      known.value, known.origin = v, "command line"
    end
    schema.params[name] = known
    schema.param_order[#schema.param_order + 1] = name
  end
  return known.value
end

-- ---- a spec's values --------------------------------------------------------------------------------------------

local sections = {}
for _, row in ipairs(schema.rows) do
  local s = row.name:match "^(%w+)%."
  if s then sections[s] = true end
end
schema.sections = sections

-- What else stands at the top of a spec.
local top_other <const> = { model = true, forward = true }

-- train = { optimizer = mg.adamw {...}, schedule = mg.cosine {...} }: objects that stand for several keys.
local function expand_object(section, k, v, put)
  if type(v) ~= "table" or not v.sets then return false end
  for _, name in ipairs(lib.sorted_keys(v.sets)) do put(name, v.sets[name], v.loc) end
  return true
end

-- Checks the table of mg.spec; values: key -> { value, origin }. base: the same of the spec it derives from.
function schema.read(t, loc, base)
  local values, errors = {}, {}
  for k, v in pairs(base or {}) do values[k] = { value = v.value, origin = v.origin:gsub(" %(base%)$", "") .. " (base)" } end
  local file = (loc.file or "?"):match "[^/]+$"
  local function put(name, v, at)
    local row = schema.by_name[name]
    local code, msg = check_value(row, v, name)
    local where = diag.find_key(loc, name, true)
    if code then
      errors[#errors + 1] = { loc = where, code = code, msg = msg }
    else
      if row.type == "list" and type(v) == "string" then v = { v } end
      if row.type == "num" then v = v + 0.0 end
      values[name] = { value = v, origin = ("%s:%d"):format(file, (at or where).line or loc.line or 0), loc = where }
    end
  end
  local function unknown(name, names, what)
    errors[#errors + 1] = { loc = diag.find_key(loc, name), code = 201,
      msg = ("%s has no key '%s'"):format(what, name:match "[^.]+$") .. diag.did_you_mean(name:match "[^.]+$", names) }
  end
  local function section(s, given)
    local names = {}
    for _, row in ipairs(schema.rows) do
      local n = row.name:match("^" .. s .. "%.(.+)$")
      if n then names[#names + 1] = n end
    end
    if type(given) ~= "table" then
      errors[#errors + 1] = { loc = diag.find_key(loc, s, true), code = 202, msg = ("%s is %s; a table is expected"):format(s, show(given)) }
      return
    end
    for _, k in ipairs(lib.sorted_keys(given)) do
      local name = s .. "." .. tostring(k)
      if expand_object(s, k, given[k], put) then -- done
      elseif schema.by_name[name] then put(name, given[k])
      else unknown(name, names, s) end
    end
  end
  local top = {}
  for _, row in ipairs(schema.rows) do
    if not row.name:find(".", 1, true) then top[#top + 1] = row.name end
  end
  for s in lib.pairs(sections) do top[#top + 1] = s end
  for s in lib.pairs(top_other) do top[#top + 1] = s end
  for _, k in ipairs(lib.sorted_keys(t)) do
    if sections[k] then section(k, t[k])
    elseif schema.by_name[k] then put(k, t[k])
    elseif not top_other[k] then unknown(tostring(k), top, "spec") end
  end
  diag.fail_all(errors)
  return values
end

-- Overrides and defaults on top of what the spec says; sets schema.values.
function schema.resolve(values)
  local names = {}
  for _, row in ipairs(schema.rows) do names[#names + 1] = row.name end
  for _, n in ipairs(schema.param_order) do names[#names + 1] = n end
  for _, k in ipairs(schema.override_order) do
    local row = schema.by_name[k]
    if row then
      local v, code, msg = schema.parse_word(row, schema.overrides[k])
      if code then diag.fail({ file = "command line" }, code, msg) end
      values[k] = { value = v, origin = "command line" }
    elseif not schema.params[k] then
      diag.fail({ file = "command line" }, 201, ("no key and no mg.param '%s'"):format(k) .. diag.did_you_mean(k, names))
    end
  end
  for _, row in ipairs(schema.rows) do
    if not values[row.name] then
      local derived = type(row.default) == "string" and row.default:match "^derived: "
      local v = row.default
      if derived then v = nil end
      values[row.name] = { value = v, origin = derived and "derived" or "default" }
    end
  end
  schema.values = values
  return values
end

function schema.get(name) return schema.values[name].value end

function schema.loc(name) return schema.values[name].loc or {} end

function schema.derive(name, v)
  local e = schema.values[name]
  if e.value == nil then e.value = v end
  return e.value
end

-- ---- printing ---------------------------------------------------------------------------------------------------

local function text(v)
  if type(v) == "table" then return table.concat(v, ",") end
  if math.type(v) == "float" then
    local s = ("%.17g"):format(v)
    for digits = 1, 17 do
      s = ("%." .. digits .. "g"):format(v)
      if tonumber(s) == v then break end
    end
    return s
  end
  return tostring(v)
end
schema.text = text

-- What a row allows, as mg_key says it: "a|b|c", "0..1", "1..", "0..<1" or "".
local function allows(row)
  if row.one_of then return table.concat(row.one_of, "|") end
  if not (row.min or row.max or row.below) then return "" end
  return (row.min and text(row.min) or "") .. ".." .. (row.below and "<" .. text(row.below) or row.max and text(row.max) or "")
end

-- Rows of mg_key, for the generated trainer.
function lib.keys()
  local out = {}
  for _, row in ipairs(schema.rows) do
    local e = schema.values and schema.values[row.name] or { value = row.default, origin = "default" }
    out[#out + 1] = { name = row.name, type = row.type, value = text(e.value == nil and "" or e.value), origin = e.origin, binds = row.binds, help = row.help,
      allows = allows(row) }
  end
  return out
end

-- Where the value of a key comes from: "default", "tiny.lua:3", "command line".
function lib.origin(name)
  return schema.values and schema.values[name] and schema.values[name].origin or "default"
end

function lib.print_config()
  local out = {}
  for _, k in ipairs(lib.keys()) do
    out[#out + 1] = ("%-30s = %-16s  %-8s %s\n"):format(k.name, k.value, k.binds, k.origin)
  end
  for _, n in ipairs(schema.param_order) do
    local p = schema.params[n]
    out[#out + 1] = ("%-30s = %-16s  %-8s %s\n"):format(n, text(p.value), "compile", p.origin == "default"
      and ("%s:%d"):format((p.loc.file or "?"):match "[^/]+$", p.loc.line or 0) or p.origin)
  end
  return table.concat(out)
end

return schema
