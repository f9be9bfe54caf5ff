-- tiny.lua: a byte-level GPT that a laptop trains in minutes.
local mg <const> = require "megagen"
local D <const>, L <const> = mg.param("dim", 128), mg.param("layers", 4)
local T <const>, W <const> = mg.param("ctx", 128), mg.param("window", 0) -- window 0: a token sees all before it

local block = mg.block {
  mg.residual { mg.rmsnorm { name = "ln_1" }, mg.attention { name = "attn", heads = 4, kv_heads = 2, window = W, rope = { theta = 10000.0 } } },
  mg.residual { mg.rmsnorm { name = "ln_2" }, mg.swiglu { name = "mlp", hidden = 3 * D } },
}

return mg.spec {
  name  = "tiny",
  model = mg.decoder {
    vocab = 257, dim = D, ctx = T,
    embed = mg.embed { tied = true },
    mg.stack(L, block), mg.rmsnorm { name = "ln_f" },
  },
  batch = { micro = 8, global = 8 },
  data  = { tokenizer = "bytes" },
  train = {
    optimizer = mg.adamw { betas = { 0.9, 0.98 }, weight_decay = 0.1 },
    lr = 1.5e-3, schedule = mg.cosine { warmup = 200, floor = 0.1 }, clip = 1.0, steps = 5500,
  },
}
