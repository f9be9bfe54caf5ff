-- A string that doubles.
local s = "x"
for _ = 1, 40 do s = s .. s end
