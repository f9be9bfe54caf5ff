-- A file that is not there.
local base = require "no_such_spec"
