-- spec.lua: mg.spec, spec:with, and what happens between a loaded spec and its trace.
local lib <const> = ...
local core <const>, diag <const>, schema <const>, module <const> = lib.core, lib.diag, lib.schema, lib.module
local mg <const> = lib.mg

local Spec = { __metatable = false }
Spec.__index = Spec
local function is_spec(s) return type(s) == "table" and debug.getmetatable(s) == Spec end

local function make(t, loc, base)
  if type(t) ~= "table" then diag.fail(loc, 202, "mg.spec: a table is expected") end
  local s = setmetatable({ loc = loc, values = schema.read(t, loc, base and base.values) }, Spec)
  s.model = t.model or base and base.model
  s.user_forward = t.forward or not t.model and base and base.user_forward or nil
  if s.model == nil and s.user_forward == nil then diag.fail(loc, 206, "spec: 'model' is missing") end
  if s.user_forward ~= nil and type(s.user_forward) ~= "function" then
    diag.fail(diag.find_key(loc, "forward", true), 202, "spec: forward is a function(batch)")
  end
  if s.model ~= nil and not s.user_forward and (not module.is_layer(s.model) or s.model.kind ~= "decoder") then
    diag.fail(diag.find_key(loc, "model", true), 220, "spec: model must be an mg.decoder { ... }, or give forward = function(batch)")
  end
  return s
end

function mg.spec(t) return make(t, diag.here "spec") end

-- base:with { ... }: the same spec with other values; sections are merged, model is taken as a whole.
function Spec:with(t)
  local loc = diag.here "with"
  if not is_spec(self) then diag.fail(loc, 202, "with: write base:with { ... }") end
  return make(t, loc, self)
end

-- Specs cannot change mg for others.
function lib.freeze_mg()
  local real = lib.mg
  local names = lib.sorted_keys(real)
  lib.mg_names = names
  local function guard(t, what)
    return setmetatable({}, {
      __index = function(_, k)
        local v = t[k]
        if v == nil then
          local text = tostring(k)
          diag.fail(diag.here(text), 103, ("%s.%s is not defined"):format(what, text) .. diag.did_you_mean(text, lib.sorted_keys(t)))
        end
        return v
      end,
      __newindex = function() diag.fail(diag.here(), 106, what .. " cannot be changed; use a local of your own") end,
      __metatable = false,
    })
  end
  real.ops = guard(real.ops, "mg.ops")
  lib.mg = guard(real, "mg")
end

-- ---- loading ----------------------------------------------------------------------------------------------------

local spec

local function configure(path)
  local get, derive = schema.get, schema.derive
  derive("name", path:match "([^/]+)%.lua$" or path:match "[^/]+$" or "model")
  if not get "name":find "^[%w][%w_.-]*$" or #get "name" > 100 then
    diag.fail(schema.loc "name", 601, ("the name '%s' is not letters, digits, _ . and -"):format(get "name"))
  end
  derive("batch.global", get "batch.micro")
  if spec.model then derive("batch.seq", spec.model.cfg.ctx) end
  if get "batch.seq" == nil then diag.fail(spec.loc, 206, "batch.seq is missing: a forward function has no default for it") end
  if get "batch.global" % get "batch.micro" ~= 0 then
    diag.fail(schema.loc "batch.global", 203,
      ("batch.global = %d is not a multiple of batch.micro = %d"):format(get "batch.global", get "batch.micro"))
  end
  if spec.model and get "batch.seq" > spec.model.cfg.ctx then
    diag.fail(schema.loc "batch.seq", 203, ("batch.seq = %d is longer than ctx = %d of the model"):format(get "batch.seq", spec.model.cfg.ctx))
  end
  local wide = get "precision.compute" == "f64" and "f64" or "f32"
  for _, k in ipairs { "master", "grads", "moments" } do
    if derive("precision." .. k, wide) ~= wide then
      diag.fail(schema.loc("precision." .. k), 501, ("precision.%s = \"%s\" with compute = \"%s\" is not available yet; use \"%s\""):format(
        k, get("precision." .. k), get "precision.compute", wide))
    end
  end
  local sgd = get "train.optimizer" == "sgd"
  core.config {
    name = get "name", spec_file = path, target = get "target", cpu = get "cpu" ~= "native" and get "cpu" or nil,
    compute = get "precision.compute", master = get "precision.master", grads = get "precision.grads",
    moments = get "precision.moments", micro = get "batch.micro", seq = get "batch.seq", global = get "batch.global",
    remat = get "remat", fuse = get "fuse", optimizer = get "train.optimizer",
    beta1 = sgd and get "train.momentum" or get "train.beta1", beta2 = get "train.beta2", eps = get "train.eps",
  }
end

function lib.load_spec(path, overrides)
  schema.set_overrides(overrides)
  spec = lib.run_spec(path)
  if not is_spec(spec) then
    diag.fail({ file = path }, 208, ("the file returns %s; its last line must be: return mg.spec { ... }"):format(spec == nil and "nothing" or "a " .. type(spec)))
  end
  schema.resolve(spec.values)
  configure(path)
end

function lib.trace()
  local forward, c
  if spec.user_forward then
    c = { layers = 1, layer = -1 }
    if spec.model and module.is_layer(spec.model) and spec.model.kind == "decoder" then c = lib.decoder_ctx(spec.model) end
    forward = spec.user_forward
  else
    c = lib.decoder_ctx(spec.model)
    local f = lib.decoder_forward(spec.model)
    forward = function(batch) return f(batch, c) end
  end
  module.trace({ forward = forward, loc = spec.loc, user = spec.user_forward ~= nil }, c)
end
