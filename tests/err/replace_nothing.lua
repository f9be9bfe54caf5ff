-- A pattern that matches nothing.
local mg <const> = require "megagen"
local base <const> = require "tiny"
return base:with { model = mg.replace(base.model, "layers.7.mlp", mg.mlp { hidden = 64 }) }
