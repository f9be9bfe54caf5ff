-- A forward function without seq.
local mg <const> = require "megagen"
return mg.spec { forward = function(batch) return batch end }
