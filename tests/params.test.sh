#!/usr/bin/env bash
# tier: quick
# Parameter counts of the ready specs equal the closed forms of their papers; every example passes check.
set -uo pipefail
cd "$TOP" || exit 1
bad=0
count() { # want, spec, key=value ...
    local want=$1 got
    shift
    got=$("$MEGAGEN" show -p expand "$@" | awk '
        $1 == "dim" { size[$2] = $4 }
        $1 == "var" && / weight / {
            n = 1; d = $0; sub(/^[^[]*\[/, "", d); sub(/\].*/, "", d)
            k = split(d, part, " ")
            for (i = 1; i <= k; i++) n *= size[part[i]]
            sum += n
        }
        END { printf "%.0f\n", sum }')
    [ "$got" = "$want" ] && return
    echo "$*: $got parameters, $want are expected"
    bad=1
}
count 124439808 specs/gpt2.lua size=124M
count 354823168 specs/gpt2.lua size=355M
count 774030080 specs/gpt2.lua size=774M
count 1557611200 specs/gpt2.lua size=1558M
count 1235814400 specs/llama3.lua size=1B
count 8030261248 specs/llama3.lua size=8B
count 494032768 specs/qwen2.lua size=0.5B
count 1543714304 specs/qwen2.lua size=1.5B
count 7615616512 specs/qwen2.lua size=7B
for f in specs/*.lua examples/*.lua; do
    "$MEGAGEN" check "$f" >"$WORK/out" 2>&1 || { echo "$f:" && cat "$WORK/out"; bad=1; }
done
exit $bad
