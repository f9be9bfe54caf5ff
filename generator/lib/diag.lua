-- diag.lua: where a mistake is, what its name may have meant, and what each code says.
--
-- Lua tells the line of a call; the column comes from reading the source again with the small lexer below. The
-- first frame outside our own files is the user's.
local lib <const> = ...
local core <const> = lib.core
local diag = {}

-- code -> { short, long }; the long text is what `megagen explain` prints.
diag.codes = lib.load "generator/lib/codes.lua"

-- ---- lexer ------------------------------------------------------------------------------------------------------

local sources, lexed = {}, {}

function diag.source(path, text) sources[path], lexed[path] = text, nil end

local function long_end(s, at) -- at: the first '['; returns the last byte of a long string, or nil
  local eq = s:match("^%[(=*)%[", at)
  if not eq then return nil end
  local _, stop = s:find("]" .. eq .. "]", at, true)
  return stop or #s
end

-- Tokens { kind, text, line, col }; kind: name, string, number, other. Comments and blanks are dropped.
local function lex(s)
  local out, i, line, bol = {}, 1, 1, 0 -- bol: byte before the line's first
  local function skip(to)
    for p in s:sub(i, to):gmatch "()\n" do line, bol = line + 1, i + p - 1 end
    i = to + 1
  end
  while i <= #s do
    local stop, kind
    if s:find("^%s", i) then stop = select(2, s:find("^%s+", i))
    elseif s:find("^%-%-", i) then stop = long_end(s, i + 2) or (s:find("\n", i, true) or #s + 1) - 1
    elseif s:find("^[%a_]", i) then kind, stop = "name", select(2, s:find("^[%w_]+", i))
    elseif s:find("^%.?%d", i) then kind, stop = "number", select(2, s:find("^[%w.]+", i))
    elseif s:find("^%[=*%[", i) and long_end(s, i) then kind, stop = "string", long_end(s, i)
    elseif s:find("^[\"']", i) then
      local q, p = s:sub(i, i), i + 1
      while p <= #s and s:sub(p, p) ~= q and s:sub(p, p) ~= "\n" do p = p + (s:sub(p, p) == "\\" and 2 or 1) end
      kind, stop = "string", math.min(p, #s)
    else kind, stop = "other", i end
    if kind then out[#out + 1] = { kind = kind, text = s:sub(i, stop), line = line, col = i - bol } end
    skip(stop)
  end
  return out
end

local function tokens(path)
  if not lexed[path] then
    local text = sources[path] or core.asset(path) or core.read_spec(path) or ""
    lexed[path] = lex(text)
  end
  return lexed[path]
end

local opens <const> = { ["{"] = true, ["("] = true, ["["] = true }
local closes <const> = { ["}"] = true, [")"] = true, ["]"] = true }

-- Index of the token after the bracket that closes the one at i.
local function after(tok, i)
  local depth = 0
  for k = i, #tok do
    local t = tok[k]
    if t.kind == "other" and opens[t.text] then depth = depth + 1 end
    if t.kind == "other" and closes[t.text] then depth = depth - 1 end
    if depth == 0 then return k + 1 end
  end
  return #tok + 1
end

-- In the table whose '{' is token i: the tokens of `key` and of the first of its value.
local function key_in(tok, i, key)
  local k, item = i + 1, 0
  while tok[k] and tok[k].text ~= "}" do
    item = item + 1
    local name, eq = tok[k], tok[k + 1]
    if name.kind == "name" and eq and eq.text == "=" and tok[k + 2] and tok[k + 2].text ~= "=" then
      if name.text == key then return name, tok[k + 2], k + 2 end
      item = item - 1
    elseif key == item then
      return name, name, k
    end
    while tok[k] and tok[k].text ~= "," and tok[k].text ~= ";" and tok[k].text ~= "}" do
      k = opens[tok[k].text] and tok[k].kind == "other" and after(tok, k) or k + 1
    end
    if tok[k] and tok[k].text ~= "}" then k = k + 1 end
  end
end

-- Does a table constructor begin right after the name at token i (with or without a parenthesis)?
local function table_after(tok, i)
  local k = i + 1
  if tok[k] and (tok[k].text == "(" or tok[k].text == "=") then k = k + 1 end
  return tok[k] and tok[k].text == "{" and k or nil
end

-- ---- positions --------------------------------------------------------------------------------------------------

-- A call in a `return` is a tail call: Lua forgets its frame. Then the name is looked for in the whole file.
local function lost_frame(name)
  local place = lib.module and lib.module.place() or {}
  local path = lib.running and lib.running() or place.file
  if not path then return {} end
  local loc = { file = path, name = name, any = true, line = place.file == path and place.line or nil }
  for i, t in ipairs(name and tokens(path) or {}) do
    if t.text == name and t.kind == "name" then
      loc.line, loc.col = t.line, t.col
      if table_after(tokens(path), i) then break end
    end
  end
  return loc
end

-- The innermost frame of the user's, as { file, line }; name: what to look for on the line.
function diag.here(name)
  local level = 2
  while true do
    local info = debug.getinfo(level, "Slt")
    if not info then return lost_frame(name) end
    if info.what ~= "C" and not lib.is_lib[info.source] and info.source:sub(1, 1) == "@" then
      local loc = { file = info.source:sub(2), line = info.currentline, name = name }
      return name and diag.find_name(loc, name) or loc
    end
    if info.istailcall and name then
      local loc = lost_frame(name)
      if loc.line then return loc end
    end
    level = level + 1
  end
end

-- The column of a name on its line.
function diag.find_name(loc, name)
  for _, t in ipairs(tokens(loc.file)) do
    if t.line == loc.line and t.text == name then return { file = loc.file, line = t.line, col = t.col, name = name } end
  end
  return loc
end

-- The column of a key (or of its value) in the table that a call at loc was given. path: "train.lr" or a key;
-- numbers count the items without a key. Falls back to the call itself.
function diag.find_key(loc, path, want_value)
  if not loc or not loc.file or not loc.name then return loc or {} end
  local tok, first = tokens(loc.file), nil
  for i, t in ipairs(tok) do
    local open = (loc.any or t.line == loc.line) and t.text == loc.name and table_after(tok, i)
    if open then
      first = first or t
      local name, value, at = nil, nil, open
      for part in tostring(path):gmatch "[^.]+" do
        if not at or tok[at].text ~= "{" then name = nil break end
        local key = math.tointeger(tonumber(part)) or part
        name, value, at = key_in(tok, at, key)
        if at and tok[at].text ~= "{" then at = table_after(tok, at + 2) or at end
      end
      if name and path ~= "" then
        local t2 = want_value and value or name
        return { file = loc.file, line = t2.line, col = t2.col }
      end
    end
  end
  if first then return { file = loc.file, line = first.line, col = first.col } end
  return loc
end

-- ---- nearest name -----------------------------------------------------------------------------------------------

local function distance(a, b)
  local row = {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local diagonal = row[0]
    row[0] = i
    for j = 1, #b do
      local cost = a:byte(i) == b:byte(j) and 0 or 1
      local best = math.min(row[j] + 1, row[j - 1] + 1, diagonal + cost)
      diagonal, row[j] = row[j], best
    end
  end
  return row[#b]
end

-- The name of the list nearest to s, if it is near at all.
function diag.nearest(s, names)
  local best, at
  for _, n in ipairs(names) do
    local d = distance(s:lower(), n:lower())
    local inside = n:lower():find(s:lower(), 1, true) or s:lower():find(n:lower(), 1, true)
    if inside and math.abs(#n - #s) <= 4 then d = math.min(d, 2) end
    if not at or d < at then best, at = n, d end
  end
  if at and at <= math.max(1, math.min(3, #s // 2)) then return best end
end

function diag.did_you_mean(s, names)
  local near = diag.nearest(s, names)
  return near and ("\nhelp: did you mean '%s'?"):format(near) or ""
end

-- ---- reports ----------------------------------------------------------------------------------------------------

-- Ends the compile. loc: { file, line, col }, any part may be missing.
function diag.fail(loc, code, msg)
  core.fail(loc.file, loc.line or 0, loc.col or 0, code, msg)
end

-- Several mistakes of one pass over a spec: report all (at most 20, by line), then end.
function diag.fail_all(list)
  if #list == 0 then return end
  for i, e in ipairs(list) do e.order = i end
  table.sort(list, function(a, b)
    local la, lb = a.loc.line or 0, b.loc.line or 0
    if la ~= lb then return la < lb end
    return a.order < b.order
  end)
  for i = 1, math.min(#list, 20) - 1 do
    local e = list[i]
    core.error(e.loc.file, e.loc.line or 0, e.loc.col or 0, e.code, e.msg)
  end
  local e = list[math.min(#list, 20)]
  diag.fail(e.loc, e.code, e.msg .. (#list > 20 and ("\nnote: %d more"):format(#list - 20) or ""))
end

function diag.undefined(name, base)
  local loc = diag.here(name)
  local names = lib.sorted_keys(base)
  if lib.ops and lib.ops.fn[name] then
    diag.fail(loc, 103, ("global '%s' is not defined\nhelp: names of activations are strings: \"%s\"; as a function it is mg.%s"):format(
      name, name, name))
  end
  diag.fail(loc, 103, ("global '%s' is not defined"):format(tostring(name)) .. diag.did_you_mean(tostring(name), names))
end

function diag.syntax(path, msg)
  local line, what = msg:match "^.-:(%d+): (.*)$"
  diag.fail({ file = path, line = math.tointeger(tonumber(line)) or 0 }, 102, what or msg)
end

-- What lua_call_checked calls with an error value that is not ours: finds the user's line.
function diag.on_error(msg)
  if type(msg) ~= "string" and type(msg) ~= "number" then msg = "error: a " .. type(msg) .. " value" end
  msg = tostring(msg)
  local text = msg:match "^[^\n]-:%d+: (.*)$" or msg
  local where = msg:match "^([^\n]-):%d+: "
  local level, loc = 2, nil
  while true do
    local info = debug.getinfo(level, "Sl")
    if not info then break end
    if info.what ~= "C" and not lib.is_lib[info.source] and info.source:sub(1, 1) == "@" then
      loc = { file = info.source:sub(2), line = info.currentline }
      break
    end
    level = level + 1
  end
  if text == core.time_message then return { code = 104, msg = text, loc = loc or {} } end
  -- What the prelude passes on to Lua's own functions, and a recursion that happens to end in ours, is the spec's mistake.
  local users = loc and (where == "generator/lib/prelude.lua" and text:find "format" or text == "stack overflow")
  if text == core.graph_message then return { code = 105, msg = text, loc = loc or {} } end
  if where and lib.is_lib["@" .. where] and not users then
    return { code = 199, msg = "internal: " .. debug.traceback(msg, 2), loc = loc or {} }
  end
  text = text:gsub("string_format", "format")
  local near = text:match "field '([%w_]+)'" or text:match "global '([%w_]+)'" or text:match "local '([%w_]+)'"
    or text:match "upvalue '([%w_]+)'" or text:match "method '([%w_]+)'"
  if loc and near then loc = diag.find_name(loc, near) end
  local field = text:match "attempt to call a nil value %(field '([%w_]+)'%)"
  if field and lib.mg then text = text .. diag.did_you_mean(field, lib.sorted_keys(lib.mg)) end
  return { code = 100, msg = text, loc = loc or {} }
end

return diag
