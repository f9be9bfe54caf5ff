#!/usr/bin/env bash
# robust_bombs.test.sh: code of a spec that would never end or eat the machine is stopped within 5 s and 256 MiB with a message,
# wherever it stands: in the file, in a layer, in a forward function, in the vjp of an op.
# limit: 600
. "$(dirname "$0")/lib/test.sh"
cc=${CC:-cc}
$cc -O1 -D_GNU_SOURCE -o "$T/measure" "$TOP/tests/lib/measure.c"
cd "$T" || exit
sed 's/token_shift/bad_op/g' "$TOP/examples/token_shift.h" >k.h

in_file() {
    echo "local x = { dims = {} }"
    echo "$1"
    echo "return 1"
}
in_layer() {
    cat <<END
local mg <const> = require "megagen"
local bad = mg.layer("bad", function(x, c)
  $1
  return x
end)
return mg.spec { model = mg.decoder { vocab = 9, dim = 8, ctx = 4, mg.stack(1, mg.block { mg.residual { mg.rmsnorm {}, bad {} } }) } }
END
}
in_forward() {
    cat <<END
local mg <const> = require "megagen"
return mg.spec { batch = { micro = 1, seq = 4 }, forward = function(batch)
  local w = mg.weight("embed", "v=9 d=8", 0.02)
  local x = mg.ops.embed(batch.tokens, w)
  $1
  local ce = mg.cross_entropy(mg.matmul(x, w, "d"), batch.targets)
  return { loss_sum = mg.total(ce), count = mg.count_if(batch.targets) }
end }
END
}
in_vjp() {
    cat <<END
local mg <const> = require "megagen"
local o <const> = mg.op "bad_op" { doc = "", sig = "x[..] -> y[..]", kernel = "k.h", vjp = function(c)
  local x = c.cot[1]
  $1
  return { x }
end }
local bad = mg.layer("bad", function(x) return o(x) end)
return mg.spec { model = mg.decoder { vocab = 9, dim = 8, ctx = 4, mg.stack(1, mg.block { mg.residual { mg.rmsnorm {}, bad {} } }) } }
END
}

stopped() { # PLACE WORDS CODE: the words, standing there, end in one of these codes
    local id seconds kib code
    id=$(mktemp -d "$T/bomb.XXXXXX")
    cp k.h "$id"
    "in_$1" "$2" >"$id/spec.lua"
    (cd "$id" && "$T/measure" numbers timeout 20 "$MEGAGEN" check spec.lua >said 2>&1)
    read -r seconds kib code <"$id/numbers"
    [ "$code" = 1 ] || fail "$1: exit $code, expected 1: $2"
    awk -v s="$seconds" -v m="${SLOW:-5}" 'BEGIN { exit !(s <= m) }' || fail "$1: stopped after $seconds s: $2"
    [ "$kib" -le $((256 * 1024)) ] || fail "$1: $kib KiB: $2"
    grep -qaE "error\[($3)\]" "$id/said" || fail "$1: $2: expected $3, got: $(grep -am1 'error\[' "$id/said")"
    rm -r "$id"
}
SLOW=$(awk -v p="$(nproc)" '{ print 5 * ($1 > p ? $1 / p : 1) }' /proc/loadavg) # a busy machine is slower, not the limit

for place in file layer forward vjp; do
    stopped $place 'while true do end' E0104 &
    stopped $place 'local found = ("a"):rep(60):find(("a*"):rep(30) .. "b")' E0104
    wait %1
    stopped $place 'local function f(n) return 1 + f(n) end f(1)' E0100
    stopped $place 'local s = "x" while true do s = s .. s end' E0105
    stopped $place 'local t = {} while true do t[#t + 1] = {} end' E0105
    stopped $place 'error({})' E0100
    stopped $place 'error()' E0100
    [ $place = file ] || stopped $place 'local y = x while true do y = y + y end' 'E0104|E0105'
done
stopped vjp 'local t = table.move({ 1 }, 1, 1 << 60, 2)' E0104
stopped forward 'for found in ("x"):rep(1 << 24):gmatch(".-b") do end' E0104
stopped layer 'local s = ("x"):rep(1 << 16) for i = 1, 1e9 do s:format(1) end' E0104
stopped forward 'local f f = function() return f() end f()' E0104
stopped vjp 'local t = {} while true do t[#t + 1] = ("x"):rep(1 << 20) .. #t end' E0105
stopped layer 'local i = 0 while true do i = i + 1 mg.weight("w" .. i, "k=3", "zero") end' 'E0104|E0105'
stopped vjp 'while true do print("again") end' E0104
stopped file 'local t = {} for i = 1, 1e6 do t[i] = i end while true do table.sort(t, function() return true end) end' 'E0100|E0104'
stopped layer 'table.unpack({}, 1, 1e7)' E0100
stopped file 'local t = setmetatable({}, { __index = function(t, k) return t[k] end })' E0103
stopped file 'coroutine.wrap(function() while true do end end)()' E0103
stopped forward 'require "megagen" require "spec_that_is_not_there"' E0108
stopped layer 'mg.stack(1 << 40, mg.block { mg.rmsnorm {} })' 'E0203|E0105|E0104'
