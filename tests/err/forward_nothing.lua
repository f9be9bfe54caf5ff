-- forward returns no sums.
local mg <const> = require "megagen"

return mg.spec {
  batch   = { micro = 2, seq = 8 },
  forward = function(batch)
    local w = mg.weight("w", "v=16 d=8")
    local x = mg.ops.embed(batch.tokens, w)
    return x
  end,
}
