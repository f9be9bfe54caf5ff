-- golden: model.h funcs.c rows.c kernels.c products.c model.c report.md
-- The shape of specs/tiny.lua: rotary halves, shared key-value heads, swiglu, tied head, one chunk.
local mg <const> = require "megagen"

local block = mg.block {
  mg.residual { mg.rmsnorm { name = "ln_1" }, mg.attention { name = "attn", heads = 4, kv_heads = 2, rope = { theta = 10000.0 } } },
  mg.residual { mg.rmsnorm { name = "ln_2" }, mg.swiglu { name = "mlp", hidden = 96 } },
}

return mg.spec {
  name  = "tiny",
  model = mg.decoder {
    vocab = 257, dim = 64, ctx = 32,
    embed = mg.embed { tied = true },
    mg.stack(2, block), mg.rmsnorm { name = "ln_f" },
  },
  cpu   = "avx512",
  batch = { micro = 2, global = 4 },
  data  = { tokenizer = "bytes" },
  train = {
    optimizer = mg.adamw { betas = { 0.9, 0.98 }, weight_decay = 0.1 },
    lr = 1e-3, schedule = mg.cosine { warmup = 10, floor = 0.1 }, clip = 1.0, steps = 100,
  },
}
