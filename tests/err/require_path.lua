-- A path out of the folder.
local base = require "../secret"
