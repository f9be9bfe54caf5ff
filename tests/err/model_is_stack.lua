-- A model that is no decoder.
local mg <const> = require "megagen"

local block <const> = mg.block {
  mg.residual { mg.rmsnorm {}, mg.attention { heads = 4 } },
  mg.residual { mg.rmsnorm {}, mg.mlp { hidden = 128 } },
}
return mg.spec { model = mg.stack(2, block) }
