-- A table is no spec.
local mg <const> = require "megagen"
return { name = "x" }
