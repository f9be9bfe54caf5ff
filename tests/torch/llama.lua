-- llama.lua: Llama 3's shape, small: RMS norm, rotary positions with its scaling, shared key-value heads, swiglu, untied head.
local mg <const> = require "megagen"
local rope <const> = { theta = 500000.0, scaling = "llama3", factor = 8.0, low = 1.0, high = 4.0, original = 32 }
local block = mg.block {
  mg.residual { mg.rmsnorm { name = "ln_1" }, mg.attention { name = "attn", heads = 4, kv_heads = 2, rope = rope } },
  mg.residual { mg.rmsnorm { name = "ln_2" }, mg.swiglu { name = "mlp", hidden = 40 } },
}
return mg.spec {
  name  = "llama",
  model = mg.decoder { vocab = 59, dim = 24, ctx = 13, mg.stack(2, block), mg.rmsnorm { name = "ln_f" } },
  batch = { micro = 4, global = 4, seq = 13 },
  data  = { tokenizer = "bytes" },
  train = { optimizer = mg.adamw { betas = { 0.9, 0.95 }, eps = 1e-8, weight_decay = 0.1 }, lr = 3e-3,
            schedule = mg.constant {}, clip = 1.0, steps = 100 },
}
