-- main.lua: puts the Lua side together; what lua.c calls.
local lib <const> = ...
local core <const> = lib.core

function lib.open()
  lib.diag = lib.load "generator/lib/diag.lua"
  lib.schema = lib.load "generator/lib/schema.lua"
  lib.ops = lib.load "generator/lib/ops.lua"
  lib.module = lib.load "generator/lib/module.lua"
  lib.mg = {}
  lib.ops.load_rules()
  lib.load "specs/lib/layers.lua"
  lib.load "specs/lib/attention.lua"
  lib.load "generator/lib/spec.lua"
  lib.load "generator/lib/help.lua"
  for _, name in ipairs(lib.ops.order) do -- mg.silu(x): an op, where no layer has its name
    if lib.mg[name] == nil then lib.mg[name] = lib.ops.fn[name] end
  end
  lib.mg.ops = lib.ops.fn
  lib.freeze_mg()
end
