-- An op outside of a layer.
local mg <const> = require "megagen"
local y = mg.silu(3)
