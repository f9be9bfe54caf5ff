-- factor.lua: everything that could change bits in one small model: dropout, shared key-value heads, window, z-loss, padding.
local mg <const> = require "megagen"
local DROP <const> = mg.param("drop", 0.1)
local block = mg.block {
  mg.residual { mg.rmsnorm { name = "ln_1" }, mg.attention { name = "attn", heads = 4, kv_heads = 2, rope = { theta = 10000.0 }, dropout = DROP } },
  mg.residual { mg.layernorm { name = "ln_2" }, mg.mlp { name = "mlp", hidden = 72, act = "gelu_tanh", bias = true } },
  mg.residual { mg.rmsnorm { name = "ln_3" }, mg.swiglu { name = "glu", hidden = 40 } },
}
return mg.spec {
  name  = "factor",
  model = mg.decoder { vocab = 257, dim = 32, ctx = 19, embed = mg.embed { tied = true }, mg.stack(2, block), mg.rmsnorm { name = "ln_f" } },
  batch = { micro = 4, global = 8 },
  data  = { tokenizer = "bytes" },
  train = { optimizer = mg.adamw { betas = { 0.9, 0.95 }, weight_decay = 0.1 }, lr = 3e-3, schedule = mg.constant {}, clip = 1.0, steps = 5 },
}
