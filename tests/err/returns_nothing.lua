-- No return.
local mg <const> = require "megagen"
mg.rmsnorm {}
