-- Specs have no metatables.
local t = setmetatable({}, {})
