-- gated.lua: a layer and an op of your own, beside a ready spec.
-- The layer's backward, fusion and memory come from the compiler; nothing else is written.
local mg <const> = require "megagen"
local base <const> = require "tiny"

-- An op: what it means, once. The gradient is derived from the body.
local softsign <const> = mg.op "softsign" {
  doc  = "x / (1 + |x|)",
  sig  = "x[..] -> y[..]",
  body = "y = x / (1.0 + abs(x))",
}

-- A layer: a function of values. c is the table that the layer is called with.
local gated <const> = mg.layer("gated", function(x, c)
  local d <const> = mg.size(x, "d")
  local gate = mg.sigmoid(mg.linear(x, d, "gate"))
  local scale = mg.weight("scale", "d", "one")
  return softsign(mg.linear(x, d, "up")) * gate * scale * c.strength
end)

return base:with {
  name  = "gated",
  model = mg.replace(base.model, "layers.1.mlp", gated { strength = 0.5 }),
}
