-- A global batch that is no multiple.
local mg <const> = require "megagen"

local block <const> = mg.block {
  mg.residual { mg.rmsnorm {}, mg.attention { heads = 4 } },
  mg.residual { mg.rmsnorm {}, mg.mlp { hidden = 128 } },
}

return mg.spec {
  model = mg.decoder { vocab = 257, dim = 64, ctx = 32, mg.stack(2, block), mg.rmsnorm {} },
  batch = { micro = 8, global = 12 },
}
