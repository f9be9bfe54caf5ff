-- golden: model.h funcs.c
-- Qwen's shape: a bias on q, k and v, a tied head, rows of a head dim below a vector; SGD with momentum.
local mg <const> = require "megagen"

local block = mg.block {
  mg.residual { mg.rmsnorm { name = "ln_1", eps = 1e-6 },
                mg.attention { name = "attn", heads = 4, kv_heads = 2, qkv_bias = true, rope = { theta = 1000000.0 } } },
  mg.residual { mg.rmsnorm { name = "ln_2", eps = 1e-6 }, mg.swiglu { name = "mlp", hidden = 80 } },
}

return mg.spec {
  name  = "qwen",
  model = mg.decoder {
    vocab = 64, dim = 32, ctx = 16,
    embed = mg.embed { tied = true },
    mg.stack(2, block), mg.rmsnorm { name = "ln_f", eps = 1e-6 },
  },
  cpu   = "avx512",
  batch = { micro = 2, global = 2 },
  data  = { tokenizer = "bytes" },
  train = { optimizer = mg.sgd { momentum = 0.9 }, lr = 1e-3, schedule = mg.constant {}, clip = 1.0, steps = 100 },
}
