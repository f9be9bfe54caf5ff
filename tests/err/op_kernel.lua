-- A kernel file that is not there.
local mg <const> = require "megagen"
local op = mg.op "mine" { sig = "x[..] -> y[..]", kernel = "no_such_kernel.h" }
