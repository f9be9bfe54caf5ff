-- edge.lua: a small decoder whose every size and switch is a parameter; nothing is drawn at random.
local mg <const> = require "megagen"
local T <const>, V <const>, D <const>, L <const> = mg.param("T", 13), mg.param("V", 59), mg.param("D", 32), mg.param("L", 2)
local G <const>, R <const>, E <const>, F <const> = mg.param("G", 2), mg.param("R", 2), mg.param("E", 8), mg.param("F", 40)
local WINDOW <const>, ROPE <const>, TIED <const> = mg.param("window", 0), mg.param("rope", 1), mg.param("tied", 0)
local rope <const> = ROPE == 1 and { theta = mg.param("theta", 10000.0), scaling = mg.param("scaling", "none") } or false
local block = mg.block {
  mg.residual { mg.rmsnorm { name = "ln_1" },
                mg.attention { name = "attn", heads = G * R, kv_heads = G, head_dim = E, rope = rope, window = WINDOW, scale = 0.3 } },
  mg.residual { mg.layernorm { name = "ln_2" }, mg.swiglu { name = "mlp", hidden = F, bias = true } },
}
return mg.spec {
  name  = "edge",
  model = mg.decoder { vocab = V, dim = D, ctx = T, vocab_multiple = mg.param("multiple", 64), embed = mg.embed { tied = TIED == 1 },
                       mg.stack(L, block), mg.rmsnorm { name = "ln_f" } },
  batch = { micro = 2 },
  data  = { tokenizer = "bytes" },
  train = { optimizer = mg.adamw { betas = { 0.9, 0.95 }, eps = 1e-8, weight_decay = 0.1 }, lr = 3e-3, schedule = mg.constant {},
            clip = 1.0, steps = 20 },
}
