-- llama3.lua: Llama 3 (Grattafiori et al. 2024). size: 1B (Llama 3.2, tied, scaled positions) or 8B.
local mg <const> = require "megagen"
local sizes <const> = {
  ["1B"] = { layers = 16, dim = 2048, heads = 32, hidden = 8192, tied = true, ctx = 131072,
             rope = { theta = 500000.0, scaling = "llama3", factor = 32.0, original = 8192 } },
  ["8B"] = { layers = 32, dim = 4096, heads = 32, hidden = 14336, tied = false, ctx = 8192, rope = { theta = 500000.0 } },
}
local size <const> = mg.param("size", "8B")
local m <const> = sizes[size] or error("size is one of 1B, 8B, not " .. size)

local block = mg.block {
  mg.residual { mg.rmsnorm { name = "ln_1", eps = 1e-5 }, mg.attention { name = "attn", heads = m.heads, kv_heads = 8, rope = m.rope } },
  mg.residual { mg.rmsnorm { name = "ln_2", eps = 1e-5 }, mg.swiglu { name = "mlp", hidden = m.hidden } },
}

return mg.spec {
  name   = "llama3-" .. size:lower(),
  family = "llama",
  model  = mg.decoder {
    vocab = 128256, dim = m.dim, ctx = m.ctx,
    embed = mg.embed { tied = m.tied },
    mg.stack(m.layers, block), mg.rmsnorm { name = "ln_f", eps = 1e-5 },
  },
  batch = { micro = 1, global = 32, seq = 2048 },
  train = {
    optimizer = mg.adamw { betas = { 0.9, 0.95 }, weight_decay = 0.1 },
    lr = 3e-4, schedule = mg.cosine { warmup = 2000, floor = 0.1 }, clip = 1.0, steps = 100000,
  },
}
