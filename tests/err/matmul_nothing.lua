-- Nothing to sum over.
local mg <const> = require "megagen"

local bad <const> = mg.layer("bad", function(x, c)
  return mg.matmul(x, mg.weight("w", "k=8 f=16"))
end)

return mg.spec { model = mg.decoder { vocab = 257, dim = 64, ctx = 32, mg.stack(2, bad {}) } }
