-- help.lua: help, manual and completion, made from the tables that the compiler itself reads.
--
-- Verbs come from main.c as "name\targuments\thelp", exit codes from the runtime as "code\tmeaning\trestart".
local lib <const> = ...

local codes <const> = lib.load "generator/lib/codes.lua"

local function fields(line)
  local a, b, c = line:match "^([^\t]*)\t([^\t]*)\t(.*)$"
  return a, b, c
end

local function sorted(t)
  local out = {}
  for k in pairs(t) do out[#out + 1] = k end
  table.sort(out)
  return out
end

function lib.explain(code)
  local n = tonumber((code:gsub("^[Ee]0?", "")))
  local row = n and codes[n]
  if row then return ("E%04d: %s\n\n%s\n"):format(n, row[1], row[2]) end
  local out = { ("there is no diagnostic '%s'; there are:\n"):format(code) }
  for _, k in ipairs(sorted(codes)) do out[#out + 1] = ("  E%04d  %s\n"):format(k, codes[k][1]) end
  return table.concat(out)
end

-- ---- help TOPIC ---------------------------------------------------------------------------------------------------

local topic = {}

function topic.keys()
  local out = { "Keys of a spec; all but compile-time ones also of a trainer: key=value.\n\n" }
  for _, k in ipairs(lib.keys()) do
    out[#out + 1] = ("  %-22s %-5s %-8s %s\n"):format(k.name, k.type, k.binds, k.help)
    if k.value ~= "" then out[#out + 1] = ("  %-37s default %s\n"):format("", k.value) end
  end
  return table.concat(out)
end

function topic.ops()
  local out = { "Ops: functions on values. Signatures name dims; `..` is any leading dims.\n\n" }
  for _, name in ipairs(lib.ops.order) do
    local o = lib.ops.blocks[name]
    out[#out + 1] = ("  %-14s %s\n"):format(name, o.sig or "")
    if o.doc then out[#out + 1] = ("  %-14s %s\n"):format("", (o.doc:gsub("%s+", " "))) end
  end
  return table.concat(out)
end

function topic.layers()
  local out = { "Layers, written mg.NAME { setting = value, ... }\n\n" }
  for _, name in ipairs(sorted(lib.catalog)) do
    out[#out + 1] = ("  mg.%s\n"):format(name)
    local rows = lib.catalog[name]
    for _, k in ipairs(sorted(rows)) do
      local r = rows[k]
      local default = r.default ~= nil and (" (default %s)"):format(lib.schema.text(r.default)) or ""
      out[#out + 1] = ("    %-16s %-6s %s%s\n"):format(k, tostring(r.type), r.help or "", default)
    end
  end
  return table.concat(out)
end

function topic.codes() return lib.explain "all" end

-- One key, layer or op by its name.
local function entry(name)
  local out, o = {}, lib.ops.blocks[name]
  for _, k in ipairs(lib.keys()) do
    if k.name == name then out[1] = ("%s: %s; %s; default %s (%s time)\n"):format(name, k.type, k.help, k.value, k.binds) end
  end
  for _, k in ipairs(lib.catalog[name] and sorted(lib.catalog[name]) or {}) do
    local r = lib.catalog[name][k]
    local default = r.default ~= nil and (" (default %s)"):format(lib.schema.text(r.default)) or r.required and " (required)" or ""
    out[#out + 1] = ("mg.%s  %-14s %-6s %s%s\n"):format(name, k, tostring(r.type), r.help or "", default)
  end
  if o then
    out[#out + 1] = ("mg.ops.%s: %s\n  %s\n"):format(name, o.sig or "", o.doc or "")
    if o.body then out[#out + 1] = "  " .. o.body .. "\n" end
  end
  return #out > 0 and table.concat(out) or nil
end

function lib.help(name)
  if topic[name] then return topic[name]() end
  local text = entry(name)
  if text then return text end
  return ("no help on '%s'; there is: %s\n"):format(name, table.concat(sorted(topic), " "))
end

-- ---- manual page --------------------------------------------------------------------------------------------------

local function roff(s) return (s:gsub("\\", "\\e"):gsub("%-", "\\-"):gsub("^%.", "\\&.")) end

function lib.manual(verbs, exits)
  local out = { '.TH MEGAGEN 1\n.SH NAME\nmegagen \\- a compiler from a Lua model spec to a C trainer\n.SH SYNOPSIS\n' }
  local function put(s) out[#out + 1] = s end
  put ".B megagen\nSPEC.lua [key=value ...] [\\-o DIR]\n.SH VERBS\n"
  for line in verbs:gmatch "[^\n]+" do
    local name, args, help = fields(line)
    put((".TP\n.B %s\n%s\n.br\n%s\n"):format(name, roff(args), roff(help)))
  end
  put ".SH KEYS\n"
  for _, k in ipairs(lib.keys()) do
    put((".TP\n.B %s\n%s, binds at %s time, default '%s'.\n%s\n"):format(roff(k.name), k.type, k.binds, roff(k.value), roff(k.help)))
  end
  put ".SH EXIT STATUS\n"
  for line in exits:gmatch "[^\n]+" do
    local code, meaning, again = fields(line)
    put((".TP\n.B %s\n%s (restart helps: %s)\n"):format(code, roff(meaning), roff(again)))
  end
  return table.concat(out)
end

-- ---- completion ---------------------------------------------------------------------------------------------------

local shells = {}

shells.bash = [[
_megagen() {
  local cur=${COMP_WORDS[COMP_CWORD]}
  if [ "$COMP_CWORD" -eq 1 ]; then COMPREPLY=($(compgen -W "@VERBS@" -- "$cur") $(compgen -f -X '!*.lua' -- "$cur"))
  else COMPREPLY=($(compgen -W "@KEYS@" -- "$cur") $(compgen -f -- "$cur")); compopt -o nospace; fi
}
complete -F _megagen megagen
]]

shells.zsh = [[
#compdef megagen
_megagen() {
  if (( CURRENT == 2 )); then compadd @VERBS@; _files -g '*.lua'
  else compadd -S '' -- @KEYS@; _files; fi
}
compdef _megagen megagen
]]

shells.fish = [[
complete -c megagen -n __fish_use_subcommand -a "@VERBS@"
complete -c megagen -n "not __fish_use_subcommand" -a "@KEYS@"
]]

function lib.completion(shell, verbs)
  local text = shells[shell]
  if not text then return "" end
  local v, k = {}, {}
  for line in verbs:gmatch "[^\n]+" do v[#v + 1] = (fields(line)) end
  for _, row in ipairs(lib.keys()) do k[#k + 1] = row.name .. "=" end
  return (text:gsub("@(%u+)@", { VERBS = table.concat(v, " "), KEYS = table.concat(k, " ") }))
end
