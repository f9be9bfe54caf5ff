-- megagen cannot be changed.
local mg <const> = require "megagen"
mg.rmsnorm = nil
