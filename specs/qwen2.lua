-- qwen2.lua: Qwen2.5 (Qwen Team 2024): biases on q, k and v only. size: 0.5B, 1.5B or 7B.
local mg <const> = require "megagen"
local sizes <const> = {
  ["0.5B"] = { layers = 24, dim = 896, heads = 14, kv_heads = 2, hidden = 4864, vocab = 151936, tied = true },
  ["1.5B"] = { layers = 28, dim = 1536, heads = 12, kv_heads = 2, hidden = 8960, vocab = 151936, tied = true },
  ["7B"]   = { layers = 28, dim = 3584, heads = 28, kv_heads = 4, hidden = 18944, vocab = 152064, tied = false },
}
local size <const> = mg.param("size", "0.5B")
local m <const> = sizes[size] or error("size is one of 0.5B, 1.5B, 7B, not " .. size)

local block = mg.block {
  mg.residual { mg.rmsnorm { name = "ln_1", eps = 1e-6 },
                mg.attention { name = "attn", heads = m.heads, kv_heads = m.kv_heads, qkv_bias = true, rope = { theta = 1e6 } } },
  mg.residual { mg.rmsnorm { name = "ln_2", eps = 1e-6 }, mg.swiglu { name = "mlp", hidden = m.hidden } },
}

return mg.spec {
  name   = "qwen2.5-" .. size:lower(),
  family = "qwen2",
  model  = mg.decoder {
    vocab = m.vocab, dim = m.dim, ctx = 32768,
    embed = mg.embed { tied = m.tied },
    mg.stack(m.layers, block), mg.rmsnorm { name = "ln_f", eps = 1e-6 },
  },
  batch = { micro = 1, global = 32, seq = 2048 },
  train = {
    optimizer = mg.adamw { betas = { 0.9, 0.95 }, weight_decay = 0.1 },
    lr = 3e-4, schedule = mg.cosine { warmup = 2000, floor = 0.1 }, clip = 1.0, steps = 100000,
  },
}
