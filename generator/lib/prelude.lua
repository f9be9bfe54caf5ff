-- prelude.lua: the two worlds of Lua code.
--
-- Our own files (generator/lib, generator/rules, specs/lib) run in the real globals and see `core`, the door to
-- the Graph. A spec runs in a small world made here from an allow-list: no files, no clock, no random numbers,
-- no metatables, no bytecode, `pairs` in sorted order, and a global that is not defined is an error. So the same
-- spec gives the same bytes everywhere.
local core <const> = ...

local type <const>, error <const>, select <const> = type, error, select
local lib = { core = core, is_lib = {} }

-- Our own files, by name: each runs once and gets this table.
local loaded = {}
local function load_asset(path, ...)
  if loaded[path] == nil then
    local text = core.asset(path)
    if not text then error("no file " .. path .. " in this binary") end
    lib.is_lib["@" .. path] = true
    local chunk = assert(load(text, "@" .. path, "t"))
    loaded[path] = chunk(lib, ...) or true
  end
  return loaded[path]
end
lib.is_lib["@generator/lib/prelude.lua"] = true
lib.load = load_asset

-- Numbers first, then strings, then booleans; anything else has no order of its own.
local rank <const> = { number = 1, string = 2, boolean = 3 }
local function key_less(a, b)
  local ra, rb = rank[type(a)] or 4, rank[type(b)] or 4
  if ra ~= rb then return ra < rb end
  if ra <= 2 then return a < b end
  if ra == 3 then return not a and b end
  error("pairs: a table key must be a number, a string or a boolean", 3)
end

local function sorted_keys(t)
  local keys = {}
  for k in next, t do keys[#keys + 1] = k end
  table.sort(keys, key_less)
  return keys
end
lib.sorted_keys = sorted_keys

local function sorted_pairs(t)
  if type(t) ~= "table" then error("pairs: a table is expected, got " .. type(t), 2) end
  local keys, i = sorted_keys(t), 0
  return function()
    i = i + 1
    local k = keys[i]
    if k ~= nil then return k, t[k] end
  end
end
lib.pairs = sorted_pairs

-- An address would differ from run to run.
local function tostring_plain(v)
  local t = type(v)
  if t == "number" or t == "string" or t == "boolean" or t == "nil" then return tostring(v) end
  return t
end

local function copy(from, without)
  local to = {}
  for _, k in ipairs(sorted_keys(from)) do
    if not without[k] then to[k] = from[k] end
  end
  return to
end

local REP_MAX <const> = 1 << 24
local string_rep <const>, string_format <const> = string.rep, string.format
local strings = copy(string, { dump = true })
strings.rep = function(s, n, sep)
  if (#s + (sep and #sep or 0)) * (tonumber(n) or 0) > REP_MAX then
    error("string.rep: more than 16 MiB", 2)
  end
  return string_rep(s, n, sep)
end
strings.format = function(fmt, ...)
  if type(fmt) == "string" and fmt:find("%p", 1, true) then error("string.format: %p is an address", 2) end
  local arg = { ... }
  for i = 1, select("#", ...) do
    if type(arg[i]) ~= "number" then arg[i] = arg[i] ~= nil and tostring_plain(arg[i]) or "nil" end
  end
  return string_format(fmt, table.unpack(arg, 1, select("#", ...)))
end
local string_meta = getmetatable ""
string_meta.__index = strings
string_meta.__metatable = false

local function make_world()
  return {
    assert = assert, error = error, ipairs = ipairs, pairs = sorted_pairs, select = select,
    tonumber = tonumber, tostring = tostring_plain, type = type,
    math = copy(math, { random = true, randomseed = true }),
    string = copy(strings, {}), table = copy(table, {}), utf8 = copy(utf8, {}),
    print = function(...)
      local part = { ... }
      for i = 1, select("#", ...) do part[i] = tostring_plain(part[i]) end
      core.print(table.concat(part, "\t"))
    end,
  }
end

local diag = load_asset "generator/lib/diag.lua"

-- A world for one file: what is assigned stays in the file, what is missing is an error with the nearest name.
local function world_for(base)
  return setmetatable({}, {
    __index = function(_, name)
      local v = base[name]
      if v == nil then diag.undefined(name, base) end
      return v
    end,
    __newindex = function(t, name, v)
      if base[name] ~= nil then
        diag.fail(diag.here(name), 106, ("global '%s' belongs to the language and cannot be assigned"):format(name))
      end
      rawset(t, name, v)
    end,
    __metatable = false,
  })
end

-- require: "megagen", or a spec beside this one, or one of the ready specs. Each file runs once.
local base, required, stack, main = make_world(), {}, {}, ""

function lib.running() return stack[#stack] end

local function run_file(path, text)
  for _, p in ipairs(stack) do
    if p == path then diag.fail(diag.here "require", 108, "require: '" .. path .. "' requires itself") end
  end
  diag.source(path, text)
  local chunk, msg = load(text, "@" .. path, "t", world_for(base))
  if not chunk then diag.syntax(path, msg) end
  stack[#stack + 1] = path
  local result = chunk()
  stack[#stack] = nil
  return result
end

local function find_spec(name)
  local dir = (stack[#stack] or main):match "^(.*/)" or "" -- a forward function runs after its file has ended
  local path = dir .. name .. ".lua"
  local text = core.read_spec(path)
  if text then return path, text end
  path = "specs/" .. name .. ".lua"
  text = core.asset(path)
  if text then return path, text end
end

base.require = function(name)
  if name == "megagen" then return lib.mg end
  if type(name) ~= "string" or not name:find "^[%w_%-][%w_%-/.]*$" or name:find("..", 1, true) then
    diag.fail(diag.here "require", 108, "require: a name beside the spec or under specs/ is expected")
  end
  if required[name] == nil then
    local path, text = find_spec(name)
    if not path then
      diag.fail(diag.here "require", 108, ("require: no '%s.lua' beside the spec or under specs/"):format(name))
    end
    local v = run_file(path, text)
    required[name] = v == nil and true or v
  end
  return required[name]
end

-- The spec named on the command line.
function lib.run_spec(path)
  local text, why = core.read_spec(path)
  if not text then diag.fail({ file = path }, 101, why) end
  main = path
  return run_file(path, text)
end

local function on_error(msg) return diag.on_error(msg) end
lib.on_error = on_error
load_asset "generator/lib/main.lua"

return lib
