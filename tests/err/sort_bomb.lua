-- A call of a library that takes for ever.
local t = table.move({ 1 }, 1, 1 << 60, 2)
