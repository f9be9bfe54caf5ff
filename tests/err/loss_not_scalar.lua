-- A loss that is not one number.
local mg <const> = require "megagen"

return mg.spec {
  batch   = { micro = 2, seq = 8 },
  forward = function(batch)
    local w = mg.weight("w", "v=16 d=8")
    local x = mg.ops.embed(batch.tokens, w)
    return { loss_sum = mg.square(x), count = mg.count_if(batch.targets) }
  end,
}
