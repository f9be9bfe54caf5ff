-- tiny.lua: specs/tiny.lua with its four layers, small.
local mg <const> = require "megagen"
local block = mg.block {
  mg.residual { mg.rmsnorm { name = "ln_1" }, mg.attention { name = "attn", heads = 4, kv_heads = 2, rope = { theta = 10000.0 } } },
  mg.residual { mg.rmsnorm { name = "ln_2" }, mg.swiglu { name = "mlp", hidden = 48 } },
}
return mg.spec {
  name  = "tiny",
  model = mg.decoder { vocab = 59, dim = 16, ctx = 13, mg.stack(4, block), mg.rmsnorm { name = "ln_f" } },
  batch = { micro = 4, global = 4, seq = 13 },
  data  = { tokenizer = "bytes" },
  train = { optimizer = mg.adamw { betas = { 0.9, 0.95 }, eps = 1e-8, weight_decay = 0.1 }, lr = 3e-3,
            schedule = mg.constant {}, clip = 1.0, steps = 100 },
}
