-- template.lua: the template language, all of it.
--
-- A line whose first non-blank is `%` is Lua. In any other line `$(expr)` is a value, and a nil value is an error.
-- Nothing else. Every template line becomes exactly one line of Lua, so Lua's own messages name the right line.
--
-- Templates also see: tab(n), which pads with blanks to column n (at least one blank); at(node), which says that the
-- next line of output comes from that node; and ipairs, string, table, math.

local concat <const>, rep <const> = table.concat, string.rep

-- Position of the bracket that closes the one before `i`. Brackets inside strings do not count.
local function closing(s, i)
  local depth, quote = 1, nil
  while i <= #s do
    local c = s:sub(i, i)
    if quote then
      if c == "\\" then i = i + 1 elseif c == quote then quote = nil end
    elseif c == '"' or c == "'" then
      quote = c
    elseif c == "(" then
      depth = depth + 1
    elseif c == ")" then
      depth = depth - 1
      if depth == 0 then return i end
    end
    i = i + 1
  end
end

-- "a $(b) c" -> line_(12, "a ", (b), " c"), with nil caught by value_.
local function text_line(s, number, name)
  local part, from = {}, 1
  while true do
    local open = s:find("$(", from, true)
    if not open then break end
    local close = closing(s, open + 2)
    if not close then error(("%s:%d: `$(` without its `)`"):format(name, number), 0) end
    if open > from then part[#part + 1] = ("%q"):format(s:sub(from, open - 1)) end
    local expr = s:sub(open + 2, close - 1)
    part[#part + 1] = ("value_(%d, %q, %s)"):format(number, expr, expr)
    from = close + 1
  end
  if from <= #s then part[#part + 1] = ("%q"):format(s:sub(from)) end
  return ("line_(%d%s%s)"):format(number, #part > 0 and ", " or "", concat(part, ", "))
end

local function compile(src, name, env)
  local lua, number = {}, 0
  if src:sub(-1) ~= "\n" then src = src .. "\n" end
  for s in src:gmatch "(.-)\n" do
    number = number + 1
    lua[number] = s:match "^%s*%%(.*)$" or text_line(s, number, name)
  end
  local f, message = load(concat(lua, "\n"), "=" .. name, "t", env)
  if not f then error(message, 0) end
  return f
end

local TAB <const> = {}

local function join(part, n)
  local s = ""
  for i = 1, n do
    local v = part[i]
    if type(v) == "table" and v.kind == TAB then
      local column = #s - (s:match ".*()\n" or 0)
      s = s .. rep(" ", math.max(1, v.column - column))
    else
      s = s .. v
    end
  end
  return s:gsub("[ \t]+\n", "\n"):gsub("[ \t]+$", "")
end

-- expand(src, name, snapshot) -> text, line, node. line[i]: the template line of line i of text; node[i]: the node
-- named by at() for it, or 0.
return function(src, name, snapshot)
  local out, line, node, current = {}, {}, {}, 0
  local env = { ipairs = ipairs, string = string, table = table, math = math }
  function env.tab(column) return { kind = TAB, column = column } end
  function env.at(n) current = n or 0 end
  function env.value_(number, expr, v)
    if v == nil then error(("%s:%d: $(%s) is nil"):format(name, number, expr), 0) end
    if type(v) == "table" and v.kind ~= TAB or type(v) == "function" then
      error(("%s:%d: $(%s) is a %s"):format(name, number, expr, type(v)), 0)
    end
    return type(v) == "table" and v or math.type(v) == "float" and ("%.17g"):format(v) or tostring(v)
  end
  function env.line_(number, ...)
    for s in (join({ ... }, select("#", ...)) .. "\n"):gmatch "(.-)\n" do
      out[#out + 1], line[#line + 1], node[#node + 1] = s, number, current
    end
    current = 0
  end
  compile(src, name, setmetatable(env, {
    __index = function(_, key)
      local v = snapshot[key]
      if v == nil then error(("%s: nothing is called %s here"):format(name, key), 2) end
      return v
    end,
  }))()
  return concat(out, "\n") .. (#out > 0 and "\n" or ""), line, node
end
