-- qwen.lua: Qwen 2.5's shape, small: as llama, with a bias on q, k and v and a tied head.
local mg <const> = require "megagen"
local block = mg.block {
  mg.residual { mg.rmsnorm { name = "ln_1", eps = 1e-6 },
                mg.attention { name = "attn", heads = 6, kv_heads = 2, qkv_bias = true, rope = { theta = 1000000.0 } } },
  mg.residual { mg.rmsnorm { name = "ln_2", eps = 1e-6 }, mg.swiglu { name = "mlp", hidden = 40 } },
}
return mg.spec {
  name  = "qwen",
  model = mg.decoder { vocab = 59, dim = 24, ctx = 13, embed = mg.embed { tied = true },
                       mg.stack(2, block), mg.rmsnorm { name = "ln_f", eps = 1e-6 } },
  batch = { micro = 4, global = 4, seq = 13 },
  data  = { tokenizer = "bytes" },
  train = { optimizer = mg.adamw { betas = { 0.9, 0.95 }, eps = 1e-8, weight_decay = 0.1 }, lr = 3e-3,
            schedule = mg.constant {}, clip = 1.0, steps = 100 },
}
