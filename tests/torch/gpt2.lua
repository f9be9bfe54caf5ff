-- gpt2.lua: GPT-2's shape, small: layer norm, learned positions, biases, gelu, tied head.
local mg <const> = require "megagen"
local block = mg.block {
  mg.residual { mg.layernorm { name = "ln_1" }, mg.attention { name = "attn", heads = 3, bias = true } },
  mg.residual { mg.layernorm { name = "ln_2" }, mg.mlp { name = "mlp", hidden = 72, act = "gelu_tanh", bias = true } },
}
return mg.spec {
  name  = "gpt2",
  model = mg.decoder { vocab = 59, dim = 18, ctx = 13, embed = mg.embed { positions = "learned", tied = true },
                       mg.stack(2, block), mg.layernorm { name = "ln_f" } },
  batch = { micro = 4, global = 4, seq = 13 },
  data  = { tokenizer = "bytes" },
  train = { optimizer = mg.adamw { betas = { 0.9, 0.95 }, eps = 1e-8, weight_decay = 0.1 }, lr = 3e-3,
            schedule = mg.constant {}, clip = 1.0, steps = 100 },
}
