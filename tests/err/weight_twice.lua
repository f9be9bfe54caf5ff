-- One weight, two shapes.
local mg <const> = require "megagen"

local bad <const> = mg.layer("bad", function(x, c)
  return x + mg.weight("w", "d") + mg.matmul(mg.matmul(x, mg.weight("w", "d k=8")), mg.weight("v", "k d"))
end)

return mg.spec { model = mg.decoder { vocab = 257, dim = 64, ctx = 32, mg.stack(2, bad {}) } }
