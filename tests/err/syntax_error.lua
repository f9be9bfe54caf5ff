-- Not Lua.
local mg <const> = require "megagen"
return mg.spec { name = }
