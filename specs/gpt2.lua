-- gpt2.lua: GPT-2 (Radford et al. 2019). size: 124M, 355M, 774M or 1558M.
local mg <const> = require "megagen"
local sizes <const> = {
  ["124M"]  = { layers = 12, dim = 768, heads = 12 },
  ["355M"]  = { layers = 24, dim = 1024, heads = 16 },
  ["774M"]  = { layers = 36, dim = 1280, heads = 20 },
  ["1558M"] = { layers = 48, dim = 1600, heads = 25 },
}
local size <const> = mg.param("size", "124M")
local m <const> = sizes[size] or error("size is one of 124M, 355M, 774M, 1558M, not " .. size)
local D <const> = m.dim

local block = mg.block {
  mg.residual { mg.layernorm { name = "ln_1" }, mg.attention { name = "attn", heads = m.heads, bias = true } },
  mg.residual { mg.layernorm { name = "ln_2" }, mg.mlp { name = "mlp", hidden = 4 * D, act = "gelu_tanh", bias = true } },
}

return mg.spec {
  name   = "gpt2-" .. size:lower(),
  family = "gpt2",
  model  = mg.decoder {
    vocab = 50257, dim = D, ctx = 1024,
    embed = mg.embed { positions = "learned", tied = true },
    mg.stack(m.layers, block), mg.layernorm { name = "ln_f" },
  },
  batch = { micro = 4, global = 512 },
  train = {
    optimizer = mg.adamw { betas = { 0.9, 0.95 }, weight_decay = 0.1 },
    lr = 6e-4, schedule = mg.cosine { warmup = 700, floor = 0.1 }, clip = 1.0, steps = 20000,
  },
}
