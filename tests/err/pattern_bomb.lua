-- A pattern match without end.
local s = ("a"):rep(60)
local found = s:find(("a*"):rep(30) .. "b")
