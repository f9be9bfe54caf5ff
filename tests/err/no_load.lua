-- Specs compile no text.
local f = load("return 1")
