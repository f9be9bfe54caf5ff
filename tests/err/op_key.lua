-- A key that op blocks do not have.
local mg <const> = require "megagen"

local softer <const> = mg.op "softer" {
  sig = "x[..] -> y[..]", bdy = "y = x",
}
local layer <const> = mg.layer("layer", function(x) return softer(x) end)

return mg.spec { model = mg.decoder { vocab = 257, dim = 64, ctx = 32, mg.stack(2, layer {}) } }
