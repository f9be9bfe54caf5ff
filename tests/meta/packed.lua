-- packed.lua: attention of every kind that documents in one row must be kept apart in: shared key-value heads, a window, a soft cap.
local mg <const> = require "megagen"
local T <const>, W <const> = mg.param("ctx", 24), mg.param("window", 0)
local rope <const> = { theta = 10000.0 }
local block = mg.block {
  mg.residual { mg.rmsnorm { name = "ln_1" },
    mg.attention { name = "attn", heads = 4, kv_heads = 2, rope = rope, window = W, softcap = W > 0 and 5.0 or 0.0 } },
  mg.residual { mg.rmsnorm { name = "ln_2" }, mg.swiglu { name = "mlp", hidden = 40 } },
}
return mg.spec {
  name  = "packed",
  model = mg.decoder { vocab = 257, dim = 32, ctx = T, mg.stack(2, block), mg.rmsnorm { name = "ln_f" } },
  batch = { micro = 1 },
  data  = { tokenizer = "bytes", eod_mask_loss = true },
  train = { optimizer = mg.adamw { betas = { 0.9, 0.95 } }, lr = 3e-3, schedule = mg.constant {}, steps = 1 },
}
