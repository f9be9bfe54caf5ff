-- A view outside of its operand.
local mg <const> = require "megagen"

local bad <const> = mg.layer("bad", function(x, c)
  return mg.slice(x, "d", 60, 8)
end)

return mg.spec { model = mg.decoder { vocab = 257, dim = 64, ctx = 32, mg.stack(2, bad {}) } }
