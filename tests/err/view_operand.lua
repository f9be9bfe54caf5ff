-- A view of a number.
local mg <const> = require "megagen"
local bad <const> = mg.layer("bad", function(x) return mg.slice(3, "d", 0, 1) end)

return mg.spec { model = mg.decoder { vocab = 257, dim = 64, ctx = 32, mg.stack(2, bad {}) } }
