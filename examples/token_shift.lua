-- token_shift.lua: an op with a kernel of its own, in a C file beside the spec, and its gradient by hand.
local mg <const> = require "megagen"
local base <const> = require "tiny"

local unshift <const> = mg.op "token_unshift" {
  doc = "the gradient of token_shift", sig = "x[b s d] -> y[b s d]", kernel = "token_shift.h", nograd = true,
}
local shift <const> = mg.op "token_shift" {
  doc = "the row of the position before, zeros at the first", sig = "x[b s d] -> y[b s d]", kernel = "token_shift.h", mixes = true,
  vjp = function(c) return { unshift(c.cot[1]) } end,
}

-- An MLP that sees its own position and the one before, mixed by a learned share for each channel.
local mixed <const> = mg.layer("mixed", function(x, c)
  local d <const> = mg.size(x, "d")
  local past = shift(x)
  local z = x + (past - x) * mg.weight("mix", "d", { kind = "const", a = 0.5 })
  return mg.linear(mg.relu2(mg.linear(z, c.hidden, "up")), d, "down")
end)

return base:with {
  name  = "token_shift",
  model = mg.replace(base.model, "layers.*.mlp", mixed { hidden = 384 }),
}
