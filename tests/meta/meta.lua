-- meta.lua: shared key-value heads, rotary positions, swiglu, a tied head, and dropout on every branch.
local mg <const> = require "megagen"
local T <const>, P <const> = mg.param("ctx", 16), mg.param("dropout", 0.1)
local rope <const> = { theta = 10000.0 }
local block = mg.block {
  mg.residual { mg.rmsnorm { name = "ln_1" }, mg.attention { name = "attn", heads = 4, kv_heads = 2, rope = rope, dropout = P } },
  mg.residual { mg.rmsnorm { name = "ln_2" }, mg.swiglu { name = "mlp", hidden = 40, dropout = P } },
}
return mg.spec {
  name  = "meta",
  model = mg.decoder { vocab = 59, dim = 32, ctx = T, mg.stack(2, block), mg.rmsnorm { name = "ln_f" } },
  batch = { micro = 2, global = 4 },
  data  = { tokenizer = "bytes" },
  train = { optimizer = mg.adamw { betas = { 0.9, 0.95 }, weight_decay = 0.1 }, lr = 3e-3,
            schedule = mg.constant {}, clip = 1.0, steps = 4 },
}
