-- One size, two names.
local mg <const> = require "megagen"

local bad <const> = mg.layer("bad", function(x, c)
  return x + mg.matmul(x, mg.weight("w", "d k=64"), "d")
end)

return mg.spec { model = mg.decoder { vocab = 257, dim = 64, ctx = 32, mg.stack(2, bad {}) } }
