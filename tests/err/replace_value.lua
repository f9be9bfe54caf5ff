-- A replacement that is no layer.
local mg <const> = require "megagen"
local base <const> = require "tiny"
return base:with { model = mg.replace(base.model, "layers.1.mlp", 3) }
