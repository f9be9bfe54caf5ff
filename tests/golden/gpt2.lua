-- golden: model.h funcs.c rows.c
-- GPT-2's shape: layer norm, learned positions, biases, gelu, dropout in the residual steps, a head in four chunks.
local mg <const> = require "megagen"

local block = mg.block {
  mg.residual { mg.layernorm { name = "ln_1" }, mg.attention { name = "attn", heads = 3, bias = true, dropout = 0.1 } },
  mg.residual { mg.layernorm { name = "ln_2" }, mg.mlp { name = "mlp", hidden = 96, act = "gelu_tanh", bias = true } },
}

return mg.spec {
  name  = "gpt2",
  model = mg.decoder {
    vocab = 59, dim = 24, ctx = 16,
    embed = mg.embed { positions = "learned", tied = true },
    mg.stack(2, block), mg.layernorm { name = "ln_f" },
  },
  cpu   = "avx512",
  batch = { micro = 4, global = 4, chunk = 16 },
  data  = { tokenizer = "bytes" },
  train = { optimizer = mg.adamw { weight_decay = 0.1 }, lr = 1e-3, schedule = mg.constant {}, clip = 1.0, steps = 100 },
}
