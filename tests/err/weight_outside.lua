-- A weight outside of a layer.
local mg <const> = require "megagen"
local w = mg.weight("w", "d=8")
