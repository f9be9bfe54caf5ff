-- Specs have no files.
local f = io.open("/etc/passwd")
