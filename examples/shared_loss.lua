-- shared_loss.lua: a forward function and a loss of your own, and a weight that all layers share.
-- The model predicts the next byte; the loss adds a small pull of the logits towards 0.
local mg <const> = require "megagen"
local V <const>, D <const> = 257, 64

local mix <const> = mg.layer("mix", function(x)
  local w = mg.weight("/mix.w", "d f=128", 0.02)      -- "/": one weight, whoever asks for it
  local v = mg.weight("/mix.v", "f d", 0.02)
  return mg.matmul(mg.gelu(mg.matmul(x, w)), v)
end)

local layer <const> = mg.block {
  mg.residual { mg.rmsnorm {}, mg.attention { heads = 2, rope = {} } },
  mg.residual { mg.rmsnorm {}, mix { name = "mix" } },
}
local stack <const> = mg.stack(2, layer)
local norm <const> = mg.rmsnorm { name = "ln_f" }

return mg.spec {
  name    = "shared_loss",
  batch   = { micro = 4, seq = 32 },
  forward = function(batch)
    local w = mg.weight("embed", ("v=%d d=%d"):format(V, D), 0.02)
    local x = norm(stack(mg.ops.embed(batch.tokens, w)))
    local logits = mg.matmul(x, w, "d")
    local ce = mg.cross_entropy(logits, batch.targets)
    local pull = mg.total(mg.square(logits)) * 1e-6
    return { loss_sum = mg.total(ce) + pull, count = mg.count_if(batch.targets) }
  end,
}
