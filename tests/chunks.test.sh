# Random numbers inside a loop body: an element of the micro batch draws the same whatever the chunks are. Dropout on the
# logits of the head (in a copy of the layers), chunks of 4 and of 26 tokens: the loss must be the same.
# limit: 120
. tests/lib/test.sh
CC=${CC:-cc}
lib=build/release/libmg.a
mkdir -p "$T/home"
cp -r generator kernels specs templates runtime "$T/home/"
drop='    logits = op.dropout(logits, { p = 0.3 })'
sed "s/^\(    local logits = ops.contract.*\)/\1\n$drop/" specs/lib/layers.lua >"$T/home/specs/lib/layers.lua"
has "$T/home/specs/lib/layers.lua" "$drop"

loss() { # CHUNK
    local out=$T/c$1 f contract
    MEGAGEN_HOME=$T/home "$MEGAGEN" tests/torch/gpt2.lua -o "$out" precision.compute=f64 "batch.chunk=$1" >"$out.log" 2>&1 ||
        fail "chunk $1: $(tail -3 "$out.log")"
    (
        cd "$out" || exit
        sed -n 's/^compile \([a-z0-9_]*\) \1\.c *\(-ffp-contract=[a-z]*\).*/\1 \2/p' build.sh >parts
        while read -r f contract; do
            "$CC" -std=gnu11 -O1 -march=native "$contract" -Iruntime -Ikernels -Ikernels/cpu -c "$f.c" &
        done <parts
        wait
    )
    "$CC" -std=gnu11 -O1 -D_GNU_SOURCE -I "$out/runtime" tests/grad_check.c "$out"/*.o "$lib" -lm -lpthread -o "$out/check"
    "$out/check" | sed 's/^loss \([^ ]*\) .*/\1/'
}

a=$(loss 4) b=$(loss 26)
grep -q 'int trip' "$T/c4/rows.c" || fail "no kernel of the loop knows its trip"
near "$a" "$b" 1e-13
