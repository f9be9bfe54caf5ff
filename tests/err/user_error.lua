-- An error of the spec's own.
local function size(n) error("size " .. n .. " is not supported") end
size(3)
