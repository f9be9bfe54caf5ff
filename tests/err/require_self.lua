-- A spec that requires itself.
return require "require_self"
