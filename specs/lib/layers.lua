-- layers.lua: the layers that specs are composed of. Each takes one table; `name` is the part of the path under which its
-- weights are saved. Shapes: b batch, s sequence, d model, f hidden, v vocabulary.
local lib <const> = ...
local diag <const>, ops <const>, module <const>, schema <const>, core <const> = lib.diag, lib.ops, lib.module, lib.schema, lib.core
local op <const>, view <const> = ops.fn, ops.view

local mg = lib.mg
local STD <const> = 0.02

-- A constructor: checks its table by rows (as in schema.lua), makes a layer. rows: name -> { type, default, help, ... }.
local catalog = {}
lib.catalog = catalog

local function constructor(kind, rows, run, more)
  rows.name = rows.name or { type = "str", help = "part of the path" }
  catalog[kind] = rows
  mg[kind] = function(t, ...)
    if ops.is_value(t) and op[kind] then -- mg.swiglu(g, u): the op of that name
      local y = op[kind](t, ...)
      return y
    end
    local loc = diag.here(kind)
    local cfg = schema.check_table(kind, rows, t == nil and {} or t, loc)
    if cfg.name and not cfg.name:find "^[%a_][%w_]*$" then
      diag.fail(diag.find_key(loc, "name", true), 601, ("%s: the name '%s' is not letters, digits and _"):format(kind, cfg.name))
    end
    local l = module.layer(kind, cfg.name, cfg, loc, run)
    if more then more(l, cfg, loc) end
    return l
  end
end
lib.constructor = constructor

local function bias(x, name, dims)
  return x + module.weight(name, dims, "zero", { decay = false })
end
lib.bias = bias

-- Standard deviation of projections that write to the residual stream: std / sqrt(2 L), L layers.
local function out_std(c) return STD / math.sqrt(2 * math.max(1, c.layers or 1)) end
lib.STD, lib.out_std = STD, out_std

local function dropout(x, p)
  if p == 0.0 then return x end
  return op.dropout(x, { p = p })
end
lib.dropout = dropout

-- ---- norms ------------------------------------------------------------------------------------------------------

local norm_rows <const> = {
  eps = { type = "num", default = 1e-5, min = 0, help = "added to the variance" },
}

constructor("rmsnorm", { eps = norm_rows.eps }, function(cfg, x)
  return (op.rmsnorm(x, module.weight("w", { x.dims[#x.dims] }, "one"), { eps = cfg.eps }))
end)

constructor("layernorm", { eps = norm_rows.eps, bias = { type = "bool", default = true, help = "with a bias" } }, function(cfg, x)
  local d = { x.dims[#x.dims] }
  local w = module.weight("w", d, "one")
  if not cfg.bias then return (op.layernorm_nb(x, w, { eps = cfg.eps })) end
  return (op.layernorm(x, w, module.weight("b", d, "zero"), { eps = cfg.eps }))
end)

-- ---- linear, MLP ------------------------------------------------------------------------------------------------

local linear_rows <const> = {
  out = { type = "int", required = true, min = 1, shape = true, help = "size of the result" },
  bias = { type = "bool", default = false, help = "with a bias" },
  std = { type = "num", default = STD, min = 0, help = "standard deviation of the initial weights" },
}

-- x[.. d] w[d u] -> [.. u]. The name of the new dim is nobody's choice: it fits any dim of its size.
local function linear(cfg, x)
  local d = x.dims[#x.dims]
  local u = core.dim("u", cfg.out)
  ops.auto[u] = true
  local y = ops.contract(x, module.weight("w", { d, u }, cfg.std), { d })
  return cfg.bias and bias(y, "b", { u }) or y
end
constructor("linear", linear_rows, linear)

-- mg.linear { out = n } is a layer; mg.linear(x, n [, name]) applies one.
local linear_layer = mg.linear
function mg.linear(a, n, name)
  if not ops.is_value(a) then return linear_layer(a) end
  local loc = diag.here "linear"
  local code = math.type(n) ~= "integer" and 107 or n < 1 and 203
  if code then diag.fail(loc, code, ("linear: the size of the result is %s; a whole number is expected"):format(tostring(n))) end
  local l = module.layer("linear", name or "linear", { out = n, bias = false, std = STD }, loc, linear)
  return l(a)
end

constructor("mlp", {
  hidden = { type = "int", required = true, min = 1, shape = true, help = "size of the hidden layer" },
  act = { type = "str", default = "gelu", one_of = ops.unary, help = "activation: an op x[..] -> y[..], yours too" },
  bias = { type = "bool", default = false, help = "biases on both matrices" },
  dropout = { type = "num", default = 0.0, min = 0, below = 1, help = "on the result" },
}, function(cfg, x, c)
  local d, f = x.dims[#x.dims], core.dim("f", cfg.hidden)
  local h = ops.contract(x, module.weight("up", { d, f }, STD), { d })
  if cfg.bias then h = bias(h, "up_b", { f }) end
  local y = ops.contract(op[cfg.act](h), module.weight("down", { f, d }, out_std(c)), { f })
  if cfg.bias then y = bias(y, "down_b", { d }) end
  return dropout(y, cfg.dropout)
end)

-- Gated MLPs: one matrix makes gate and up, [d 2 f].
for _, kind in ipairs { "swiglu", "geglu", "geglu_tanh", "reglu", "glu" } do
  constructor(kind, {
    hidden = { type = "int", required = true, min = 1, shape = true, help = "size of the hidden layer" },
    bias = { type = "bool", default = false, help = "biases on both matrices" },
    dropout = { type = "num", default = 0.0, min = 0, below = 1, help = "on the result" },
  }, function(cfg, x, c)
    local d, f, two = x.dims[#x.dims], core.dim("f", cfg.hidden), core.dim("p", 2)
    local gu = ops.contract(x, module.weight("gate_up", { d, two, f }, STD), { d })
    if cfg.bias then gu = bias(gu, "gate_up_b", { two, f }) end
    local gate = view.drop(view.slice(gu, -2, 0, 1), -2)
    local up = view.drop(view.slice(gu, -2, 1, 1), -2)
    local y = ops.contract(op[kind](gate, up), module.weight("down", { f, d }, out_std(c)), { f })
    if cfg.bias then y = bias(y, "down_b", { d }) end
    return dropout(y, cfg.dropout)
  end)
end

-- ---- composition ------------------------------------------------------------------------------------------------

-- Default names of parts: by kind; the same name more than once gets numbers.
local default_name <const> = { rmsnorm = "norm", layernorm = "norm", attention = "attn", swiglu = "mlp", geglu = "mlp",
  geglu_tanh = "mlp", reglu = "mlp", glu = "mlp" }

local function name_parts(children, loc, what)
  local count, used = {}, {}
  local function each(list, f)
    for i, l in ipairs(list) do
      if l.transparent then
        local inner = table.move(l.children, 1, #l.children, 1, {})
        each(inner, f)
        list[i] = module.copy(l, { children = inner })
      else
        list[i] = f(l)
      end
    end
  end
  local function base(l) return default_name[l.kind] or l.kind end
  each(children, function(l)
    if l.name then
      if used[l.name] then
        diag.fail(l.loc or loc, 602, ("%s: two parts are named '%s'"):format(what, l.name))
      end
      used[l.name] = true
    else
      count[base(l)] = (count[base(l)] or 0) + 1
    end
    return l
  end)
  local nth = {}
  each(children, function(l)
    if l.name then return l end
    local b = base(l)
    nth[b] = (nth[b] or 0) + 1
    local name = (count[b] > 1 or used[b]) and ("%s_%d"):format(b, nth[b]) or b
    return module.copy(l, { name = name })
  end)
end

local function layers_of(kind, t, loc)
  local out = {}
  for i, l in ipairs(t) do
    if not module.is_layer(l) then
      diag.fail(diag.find_key(loc, i), 220, ("%s: item %d is a %s, not a layer"):format(kind, i, type(l))
        .. (type(l) == "function" and "\nhelp: call it with a table, such as mg.rmsnorm {}" or ""))
    end
    out[i] = l
  end
  if #out == 0 then diag.fail(loc, 220, kind .. ": no layers in it") end
  return out
end

local function list_constructor(kind, rows, run, more)
  catalog[kind] = rows
  mg[kind] = function(t)
    local loc = diag.here(kind)
    if module.is_layer(t) then t = { t } end
    local cfg = schema.check_table(kind, rows, t, loc, nil, true)
    local l = module.layer(kind, cfg.name, cfg, loc, run, { children = layers_of(kind, t, loc) })
    return more and more(l, cfg, loc) or l
  end
end

local function run_children(l, x)
  for _, c in ipairs(l.children) do
    x = c(x)
    if not ops.is_value(x) then diag.fail(c.loc or {}, 220, c.kind .. " must return a value") end
  end
  return x
end

-- x + f(x): the parts run one after another, their result is added.
list_constructor("residual", { scale = { type = "num", default = 1.0, help = "factor of what is added" } }, function(cfg, x, c, l)
  local y = run_children(l, x)
  if cfg.scale ~= 1.0 then y = op.scale(y, { by = cfg.scale }) end
  y = ops.adopt(x, y)
  if not ops.same_dims(x.dims, y.dims) then
    diag.fail(l.loc, 313, ("residual: x is %s, what is added is %s"):format(ops.dims_str(x.dims), ops.dims_str(y.dims)))
  end
  local last = l.children[#l.children]
  local z = module.within((last.name or last.kind) .. "_add", nil, ops.pointwise, "add", x, y)
  core.value_mark(z.id, ops.RESID, "")
  return z
end, function(l) return module.copy(l, { transparent = true }) end)

local function named(kind)
  return function(l, cfg, loc)
    name_parts(l.children, loc, kind)
    return module.copy(l, { func_name = cfg.name or kind })
  end
end

list_constructor("block", { name = { type = "str", help = "name of its function" } }, function(_, x, _, l) return run_children(l, x) end, named "block")
list_constructor("seq", { name = { type = "str", help = "part of the path" } }, function(_, x, _, l) return run_children(l, x) end, named "seq")

-- mg.stack(n, layer) or mg.stack(n, function(i) return layer end), i from 0. Weights are named NAME.i...; name: "layers".
function mg.stack(n, what, opts)
  local loc = diag.here "stack"
  if math.type(n) ~= "integer" then
    diag.fail(loc, math.type(n) == "float" and 107 or 202, ("stack: the number of layers is %s; a whole number is expected"):format(tostring(n)))
  end
  if n < 1 or n > 4096 then diag.fail(loc, 203, ("stack: %d layers; 1 to 4096 are possible"):format(n)) end
  local o = schema.check_table("stack", { name = { type = "str", default = "layers", help = "part of the path" } }, opts or {}, loc)
  local elements = {}
  for i = 0, n - 1 do
    local l = what
    if type(what) == "function" then l = what(i) end
    if not module.is_layer(l) then
      diag.fail(loc, 220, ("stack: layer %d is a %s, not a layer"):format(i, type(l)))
    end
    if l.transparent then l = mg.block { l } end
    elements[i + 1] = l
  end
  return module.layer("stack", o.name, {}, loc, function(_, x, _, l) return module.run_stack(l, x) end, { elements = elements })
end

-- mg.pattern("M-M-*", { M = layer, ["*"] = layer, ["-"] = layer }): a stack by letters.
function mg.pattern(text, kinds, opts)
  local loc = diag.here "pattern"
  if type(text) ~= "string" or type(kinds) ~= "table" then diag.fail(loc, 202, "pattern: a string and a table of layers are expected") end
  for ch in text:gmatch "." do
    if not kinds[ch] then diag.fail(loc, 205, ("pattern: '%s' stands for no layer"):format(ch)) end
  end
  local l = mg.stack(#text, function(i) return kinds[text:sub(i + 1, i + 1)] end, opts)
  return l
end

-- ---- embedding, head, loss --------------------------------------------------------------------------------------

constructor("embed", {
  positions = { type = "str", default = "none", one_of = { "none", "learned" }, help = "learned: a vector is added for each position" },
  tied = { type = "bool", default = false, help = "the head uses the same matrix" },
  dropout = { type = "num", default = 0.0, min = 0, below = 1, help = "on the result" },
  std = { type = "num", default = STD, min = 0, help = "standard deviation of the initial weights" },
  scale = { type = "num", default = 1.0, help = "factor of the vectors" },
}, function(cfg, ids, c)
  local d, s = core.dim("d", c.dim), ids.dims[#ids.dims]
  local x = op.embed(ids, module.weight("w", { c.v, d }, cfg.std))
  if cfg.scale ~= 1.0 then x = op.scale(x, { by = cfg.scale }) end
  if cfg.positions == "learned" then
    if c.ctx == ops.dim_size(s) then
      x = x + module.weight("pos", { s, d }, cfg.std)
    else
      local ids_pos = module.table_var("pos_ids", "i32", { s }, "iota", {})
      x = x + op.embed(ids_pos, module.weight("pos", { core.dim("p", c.ctx), d }, cfg.std))
    end
  end
  x = dropout(x, cfg.dropout)
  core.value_mark(x.id, ops.RESID, "")
  return x
end)

-- The largest divisor of n that is at most `limit`; one a little larger if that is far below.
local function chunk_size(n, limit)
  local low, high = 1, n
  local function divisor(k)
    if k <= limit then low = math.max(low, k) else high = math.min(high, k) end
  end
  local k = 1
  while k * k <= n do -- divisors come in pairs
    if n % k == 0 then
      divisor(k)
      divisor(n // k)
    end
    k = k + 1
  end
  if low * 4 < limit and high <= 4 * limit then return high end
  return low
end

local LOGITS <const> = 16 << 20 -- elements of one chunk of logits: a smaller chunk reads the table once more
local ROWS_MIN <const> = 64

-- Sums of the cross-entropy and of the targets. The logits exist for one chunk of tokens only.
function lib.head_loss(x, w, targets, o)
  local d = x.dims[#x.dims]
  local tokens = ops.dim_size(x.dims[1]) * ops.dim_size(x.dims[2])
  local v = w.dims[1]
  local chunk = schema.get "batch.chunk"
  if chunk == 0 then
    chunk = chunk_size(tokens, math.max(ROWS_MIN, LOGITS // ops.dim_size(v)))
  elseif tokens % chunk ~= 0 then
    diag.fail(schema.loc "batch.chunk", 203, ("batch.chunk = %d does not divide the %d tokens of a micro batch"):format(chunk, tokens))
  end
  local cn = { { "c", tokens // chunk }, { "n", chunk } }
  local xs = view.split(view.merge(x, 1, 2, "t"), 1, cn)
  local ts = view.split(view.merge(ops.import(targets), 1, 2, "t"), 1, cn)
  local loss = module.loop("chunk", tokens // chunk, { xs, ts }, function(xc, tc)
    local logits = ops.contract(xc, w, { d })
    if o.softcap > 0 then logits = op.softcap(logits, { cap = o.softcap }) end
    core.value_mark(logits.id, ops.MARKED, "logits")
    return op.total(op.cross_entropy(logits, tc, { zloss = o.z_loss }))
  end)
  return { loss_sum = loss, count = op.count_if(targets) }
end

local decoder_rows <const> = {
  vocab = { type = "int", required = true, min = 2, max = 1 << 24, shape = true, help = "number of token ids" },
  dim = { type = "int", required = true, min = 1, max = 1 << 20, shape = true, help = "size of the residual stream" },
  ctx = { type = "int", required = true, min = 1, max = 1 << 24, shape = true, help = "longest sequence" },
  embed = { type = "layer", help = "mg.embed" },
  softcap = { type = "num", default = 0.0, min = 0, help = "logits stay within it; 0 = no cap" },
  z_loss = { type = "num", default = 0.0, min = 0, help = "weight of the squared log-sum in the loss" },
  vocab_multiple = { type = "int", default = 64, min = 1, max = 1 << 16, help = "rows in memory are a multiple of it" },
}
catalog.decoder = decoder_rows

local function count_layers(children)
  local n = 0
  for _, l in ipairs(children) do
    if l.elements then n = n + #l.elements end
  end
  return n
end

-- A decoder-only language model: embedding, what is listed, and a head with cross-entropy.
function mg.decoder(t)
  local loc = diag.here "decoder"
  local cfg = schema.check_table("decoder", decoder_rows, t, loc, nil, true)
  local children = layers_of("decoder", t, loc)
  local embed = cfg.embed or mg.embed {}
  if not module.is_layer(embed) or embed.kind ~= "embed" then
    diag.fail(diag.find_key(loc, "embed", true), 220, "decoder: embed must be an mg.embed { ... }")
  end
  table.insert(children, 1, embed.name and embed or module.copy(embed, { name = "embed" }))
  name_parts(children, loc, "decoder")
  return module.layer("decoder", nil, cfg, loc, nil, { children = children })
end

function lib.decoder_ctx(model)
  return { dim = model.cfg.dim, ctx = model.cfg.ctx, vocab = model.cfg.vocab, layers = count_layers(model.children), layer = -1 }
end

function lib.decoder_forward(model)
  return function(batch, c)
    local cfg = model.cfg
    c.v = core.dim("v", cfg.vocab)
    local m = cfg.vocab_multiple
    core.dim_pad(c.v, (cfg.vocab + m - 1) // m * m)
    module.segment_name "embed"
    local x = model.children[1](batch.tokens)
    for i = 2, #model.children do
      if model.children[i].kind ~= "stack" and model.children[i - 1].kind == "stack" then module.segment_name "head" end
      x = model.children[i](x)
    end
    if model.children[#model.children].kind == "stack" then module.segment_name "head" end
    local tied, d, last = model.children[1].cfg.tied, core.dim("d", cfg.dim), x.dims[#x.dims]
    if ops.auto[last] and ops.dim_size(last) == cfg.dim then x = view.rename(x, #x.dims, d) end
    if tied and x.dims[#x.dims] ~= d then
      diag.fail(model.loc, 313, ("decoder: a tied head needs the width of the embedding, %d; the last layer gives %s"):format(
        cfg.dim, ops.dims_str(x.dims)))
    end
    module.enter("head", model.loc)
    local w = module.weight(tied and "/" .. model.children[1].name .. ".w" or "/head.w", { c.v, x.dims[#x.dims] }, STD)
    local sums = lib.head_loss(x, w, batch.targets, cfg)
    module.leave("head")
    return sums
  end
end

-- ---- optimizers and schedules: objects that stand for several keys ----------------------------------------------

local function object(name, rows, sets)
  catalog[name] = rows
  mg[name] = function(t)
    local loc = diag.here(name)
    local cfg = schema.check_table(name, rows, t or {}, loc)
    return { sets = sets(cfg, loc), loc = loc }
  end
end

local function copy_keys(cfg, out, map)
  for k, key in next, map do
    if cfg[k] ~= nil then out[key] = cfg[k] end
  end
  return out
end

object("adamw", {
  betas = { type = "table", help = "decay of the two moments" }, eps = { type = "num", min = 1e-30, help = "added to the root" },
  weight_decay = { type = "num", min = 0, help = "decay of weights with two or more dims" },
}, function(cfg, loc)
  local out = copy_keys(cfg, { ["train.optimizer"] = "adamw" }, { eps = "train.eps", weight_decay = "train.weight_decay" })
  if cfg.betas then
    if type(cfg.betas[1]) ~= "number" or type(cfg.betas[2]) ~= "number" or #cfg.betas ~= 2 then
      diag.fail(diag.find_key(loc, "betas", true), 202, "adamw: betas are two numbers, such as { 0.9, 0.95 }")
    end
    out["train.beta1"], out["train.beta2"] = cfg.betas[1], cfg.betas[2]
  end
  return out
end)

object("sgd", {
  momentum = { type = "num", min = 0, below = 1, help = "decay of the moment" },
  weight_decay = { type = "num", min = 0, help = "added to the gradient" },
}, function(cfg)
  return copy_keys(cfg, { ["train.optimizer"] = "sgd" }, { momentum = "train.momentum", weight_decay = "train.weight_decay" })
end)

local course <const> = {
  warmup = { type = "int", min = 0, help = "steps of the warm-up" }, warmup_init = { type = "num", min = 0, help = "learning rate at its start" },
  floor = { type = "num", min = 0, max = 1, help = "smallest learning rate, as a share of lr" },
  decay = { type = "int", min = 0, help = "step at which the floor is reached" },
}
for _, name in ipairs { "constant", "linear_decay", "cosine", "inverse_sqrt", "wsd" } do
  local rows = {}
  for k, v in next, course do rows[k] = v end
  if name == "wsd" then
    rows.wsd_decay = { type = "int", min = 0, help = "steps of the decay at the end" }
    rows.shape = { type = "str", one_of = { "linear", "cosine", "exponential", "minus_sqrt" }, help = "shape of that decay" }
  end
  object(name, rows, function(cfg)
    return copy_keys(cfg, { ["train.schedule"] = name == "linear_decay" and "linear" or name }, {
      warmup = "train.warmup", warmup_init = "train.warmup_init", floor = "train.floor", decay = "train.decay",
      wsd_decay = "train.wsd_decay", shape = "train.wsd_shape",
    })
  end)
end

-- ---- user layers and ops ----------------------------------------------------------------------------------------

-- mg.layer(kind, function(x, c) ... return y end): a constructor of layers; c is the table it is called with.
function mg.layer(kind, fn)
  local loc = diag.here "layer"
  if type(kind) ~= "string" or not kind:find "^[%a_][%w_]*$" then diag.fail(loc, 601, "mg.layer: a name of letters, digits and _ is expected") end
  if type(fn) ~= "function" then diag.fail(loc, 202, "mg.layer: a function(x, c) is expected") end
  return function(t)
    local at = diag.here(kind)
    local cfg = {}
    if t ~= nil and type(t) ~= "table" then diag.fail(at, 202, kind .. ": a table of settings is expected") end
    for k, v in lib.pairs(t or {}) do cfg[k] = v end
    if cfg.name ~= nil and (type(cfg.name) ~= "string" or not cfg.name:find "^[%a_][%w_]*$" or #cfg.name > 64) then
      diag.fail(diag.find_key(at, "name", true), 601, ("%s: its name is letters, digits and _, at most 64"):format(kind))
    end
    return module.layer(kind, cfg.name, cfg, at, function(c, x) return fn(x, c) end, { func_name = kind, user = true })
  end
end

function mg.op(name)
  return function(b)
    local f = ops.declare(name, b, true) -- no tail call: messages look for the user's frame
    return f
  end
end

mg.weight, mg.replace, mg.param = module.weight, module.replace, schema.param

function mg.mark(v, name)
  if not ops.is_value(v) or type(name) ~= "string" then diag.fail(diag.here "mark", 301, "mg.mark(value, name)") end
  if not name:find "^[%w_][%w_./-]*$" or #name > 128 then diag.fail(diag.here "mark", 601, "mg.mark: a name of letters, digits, _ . / and - is expected") end
  local own = ops.import(v)
  core.value_mark(own.id, ops.MARKED, name)
  return own
end

mg.matmul = ops.matmul
-- Views: windows on a value, no data moves. Dims are given by name or position (from 1; negative from the end).

local function need_int(n, what)
  if math.type(n) ~= "integer" then
    diag.fail(diag.here(what), 107, ("%s: a whole number is expected, got %s"):format(what, tostring(n)))
  end
end

-- x[.. d ..] -> elements from .. from + len - 1 of d, from counted from 0.
function mg.slice(x, d, from, len, name)
  need_int(from, "slice")
  need_int(len, "slice")
  local y = view.slice(x, d, from, len, name)
  return y
end

-- The same dim by another name.
function mg.rename(x, d, name)
  if type(name) ~= "string" then diag.fail(diag.here "rename", 301, "rename: mg.rename(x, \"old\", \"new\")") end
  local y = view.rename(x, d, name)
  return y
end

-- One dim as several: mg.split(x, "d", { { "h", 4 }, { "e", 32 } }).
function mg.split(x, d, parts)
  ops.need_value(x, "split")
  for _, p in ipairs(type(parts) == "table" and parts or { false }) do
    if type(p) ~= "table" or type(p[1]) ~= "string" or math.type(p[2]) ~= "integer" or p[2] < 1 then
      diag.fail(diag.here "split", 301, "split: mg.split(x, \"d\", { { \"h\", 4 }, { \"e\", 32 } })")
    end
  end
  local y = view.split(x, d, parts)
  return y
end

-- Neighbouring dims at positions from .. to as one.
function mg.merge(x, from, to, name)
  ops.need_value(x, "merge")
  need_int(from, "merge")
  need_int(to, "merge")
  if from < 1 or to > #x.dims or from > to or type(name) ~= "string" then
    diag.fail(diag.here "merge", 301, ("merge: mg.merge(x, first, last, \"name\") with positions 1 to %d"):format(#x.dims))
  end
  local y = view.merge(x, from, to, name)
  return y
end

-- Values behind each other along a dim.
function mg.concat(list, d, name)
  if type(list) ~= "table" or #list == 0 then diag.fail(diag.here "concat", 301, "concat: a list of values is expected") end
  for _, x in ipairs(list) do ops.need_value(x, "concat") end
  local y = view.concat(list, d, name)
  return y
end

local function find_dim(x, name)
  for _, d in ipairs(x.dims) do
    if ops.dim_name(d) == name then return d end
  end
  for _, d in ipairs(x.dims) do
    if ops.dim_name(d):match "^[^.]+" == name then return d end
  end
end

-- The dims in another order: mg.transpose(x, "b h s e").
function mg.transpose(x, names)
  ops.need_value(x, "transpose")
  local order = {}
  for n in tostring(names):gmatch "%S+" do
    order[#order + 1] = find_dim(x, n)
      or diag.fail(diag.here "transpose", 307, ("transpose: %s has no dim %s"):format(ops.dims_str(x.dims), n))
  end
  local y = view.transpose(x, order)
  return y
end

-- The size of a dim.
function mg.size(x, name)
  ops.need_value(x, "size")
  local d = find_dim(x, name)
  if not d then diag.fail(diag.here "size", 307, ("size: %s has no dim %s"):format(ops.dims_str(x.dims), tostring(name))) end
  return ops.dim_size(d)
end
