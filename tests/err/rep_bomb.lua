-- A string of a gigabyte.
local s = ("x"):rep(1 << 30)
