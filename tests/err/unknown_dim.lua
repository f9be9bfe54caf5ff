-- A dim that the value does not have.
local mg <const> = require "megagen"

local bad <const> = mg.layer("bad", function(x, c)
  return x * mg.size(x, "h")
end)

return mg.spec { model = mg.decoder { vocab = 257, dim = 64, ctx = 32, mg.stack(2, bad {}) } }
