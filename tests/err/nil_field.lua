-- A field of nothing.
local cfg = { small = {} }
local d = cfg.large.dim
