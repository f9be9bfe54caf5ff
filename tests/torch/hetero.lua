-- hetero.lua: three layers of different heads and widths, with a window, capped scores, normed q and k, capped logits.
local mg <const> = require "megagen"
local heads <const>, kv <const>, hidden <const> = { 4, 2, 3 }, { 2, 1, 3 }, { 24, 56, 33 }
local function layer(i)
  return mg.block {
    mg.residual { mg.rmsnorm { name = "ln_1" },
                  mg.attention { name = "attn", heads = heads[i + 1], kv_heads = kv[i + 1], head_dim = 2 * (i + 2), rope = { theta = 10000.0 },
                                 window = i == 1 and 5 or 0, softcap = i == 2 and 3.0 or 0.0, qk_norm = i == 0 } },
    mg.residual { mg.rmsnorm { name = "ln_2" }, mg.mlp { name = "mlp", hidden = hidden[i + 1], act = "relu2" } },
  }
end
return mg.spec {
  name  = "hetero",
  model = mg.decoder { vocab = 59, dim = 20, ctx = 13, softcap = 15.0, mg.stack(3, layer), mg.rmsnorm { name = "ln_f" } },
  batch = { micro = 4, global = 4, seq = 13 },
  data  = { tokenizer = "bytes" },
  train = { optimizer = mg.adamw { betas = { 0.9, 0.95 }, eps = 1e-8, weight_decay = 0.1 }, lr = 3e-3,
            schedule = mg.constant {}, clip = 1.0, steps = 100 },
}
