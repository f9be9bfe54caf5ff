-- An op of this name exists.
local mg <const> = require "megagen"
local op = mg.op "silu" { sig = "x[..] -> y[..]", body = "y = x" }
