-- No model.
local mg <const> = require "megagen"
return mg.spec { name = "x" }
