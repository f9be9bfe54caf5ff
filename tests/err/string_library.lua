-- The library cannot be changed.
string = {}
