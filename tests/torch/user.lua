-- user.lua: a layer that the library does not have, in place of the MLP.
local mg <const> = require "megagen"
local mix = mg.layer("mix", function(x, c)
  local d = x.dims[#x.dims]
  local h = mg.tanh(mg.linear(x, c.hidden, "mix"))
  h = h * mg.weight("scale", { h.dims[#h.dims] }, "one")
  return mg.linear(h, mg.size(x, "d"), "back")
end)
local block = mg.block {
  mg.residual { mg.rmsnorm { name = "ln_1" }, mg.attention { name = "attn", heads = 3, rope = { theta = 10000.0 } } },
  mg.residual { mg.rmsnorm { name = "ln_2" }, mix { name = "mix", hidden = 40 } },
}
return mg.spec {
  name  = "user",
  model = mg.decoder { vocab = 59, dim = 18, ctx = 13, mg.stack(2, block), mg.rmsnorm { name = "ln_f" } },
  batch = { micro = 4, global = 4, seq = 13 },
  data  = { tokenizer = "bytes" },
  train = { optimizer = mg.adamw { betas = { 0.9, 0.95 }, eps = 1e-8, weight_decay = 0.1 }, lr = 3e-3,
            schedule = mg.constant {}, clip = 1.0, steps = 100 },
}
