-- A value and a string.
local mg <const> = require "megagen"

local bad <const> = mg.layer("bad", function(x, c)
  return x + "1"
end)

return mg.spec { model = mg.decoder { vocab = 257, dim = 64, ctx = 32, mg.stack(2, bad {}) } }
