-- golden: model.h funcs.c rows.c
-- Llama's shape with bf16 weights and activations: f32 masters and gradients, an untied head in two chunks, selective remat.
local mg <const> = require "megagen"
local rope <const> = { theta = 500000.0, scaling = "llama3", factor = 8.0, low = 1.0, high = 4.0, original = 32 }

local block = mg.block {
  mg.residual { mg.rmsnorm { name = "ln_1" }, mg.attention { name = "attn", heads = 4, kv_heads = 2, rope = rope } },
  mg.residual { mg.rmsnorm { name = "ln_2" }, mg.swiglu { name = "mlp", hidden = 64 } },
}

return mg.spec {
  name      = "llama",
  model     = mg.decoder { vocab = 64, dim = 32, ctx = 16, mg.stack(2, block), mg.rmsnorm { name = "ln_f" } },
  cpu       = "avx512",
  precision = { compute = "bf16" },
  remat     = "selective",
  batch     = { micro = 2, global = 2, chunk = 16 },
  data      = { tokenizer = "bytes" },
  train     = { optimizer = mg.adamw { weight_decay = 0.1 }, lr = 1e-3, schedule = mg.constant {}, clip = 1.0, steps = 100 },
}
