# 47: documents packed into one row give the result of each alone. Three documents of 5, 9 and 10 tokens fill a row of 24 (rotary
# positions make the place in the row immaterial); alone each has a row of its own. Loss and gradients agree to 1e-12 in f64, with and
# without a window; without data.packed they do not.
# tier: quick
# limit: 120
. tests/lib/test.sh
. tests/lib/parity.sh
compare_build
printf 'abca' >"$T/1.txt" && printf 'ababcdab' >"$T/2.txt" && printf 'cabaddbca' >"$T/3.txt"
for i in 1 2 3; do "$MEGAGEN" data prepare "$T/$i.txt" -o "$T/$i" >/dev/null; done
"$MEGAGEN" data prepare "$T/1.txt" "$T/2.txt" "$T/3.txt" -o "$T/all" >"$T/said"
has "$T/said" "24 tokens in 3 documents"

# made NAME KEY=VALUE...: the program $T/NAME.c runs a step; its gradients and loss are in $T/NAME.
made() {
    local name=$1
    shift
    "$MEGAGEN" tests/meta/packed.lua precision.compute=f64 "$@" -o "$T/$name.c" >"$T/log" 2>&1 || fail "$name: $(tail -5 "$T/log")"
    "$T/$name.c/trainer" "out=$T/$name" dump=grads@1 >"$T/log" 2>&1 || fail "$name: $(tail -5 "$T/log")"
    sed -n 's/.*"loss": *\([^,]*\),.*/\1/p' "$T/$name/metrics.jsonl" >"$T/$name/loss"
    grep -q '"targets":21,' "$T/$name/metrics.jsonl" || fail "$name: not 21 targets"
}
for w in 0 3; do
    made alone-$w window=$w batch.micro=3 "data.train=$T/1:1,$T/2:1,$T/3:1"
    made packed-$w window=$w data.packed=true "data.train=$T/all"
    compare_grads "packed, window $w" "$T/packed-$w/grads-1.safetensors" "$T/alone-$w/grads-1.safetensors" 1e-12
    parity_losses "$T/packed-$w/loss" "$T/alone-$w/loss" 1e-13
done
made packed-again data.packed=true "data.train=$T/all" remat=full
same "$T/packed-0/grads-1.safetensors" "$T/packed-again/grads-1.safetensors"
made joined "data.train=$T/all"
if "$COMPARE" "$T/joined/grads-1.safetensors" "$T/alone-0/grads-1.safetensors" 1e-3 >/dev/null; then
    fail "documents that see each other give the gradients of documents alone: the test sees nothing"
fi

# Evaluation keeps them apart as well: the loss of the three rows is that of the packed one.
for run in packed alone; do
    data=$T/all
    [ $run = packed ] || data=$T/1,$T/2,$T/3
    "$T/$run-0.c/trainer" eval "ckpt=$T/packed-0" "data.valid=$data" >"$T/$run.eval" 2>"$T/log" || fail "eval: $(cat "$T/log")"
    has "$T/$run.eval" "over 21 targets"
done
same "$T/packed.eval" "$T/alone.eval"
# A sample begins anew behind the end of a document; it needs no more than to work.
"$T/packed-0.c/trainer" sample "ckpt=$T/packed-0" prompt=ab sample.tokens=40 >"$T/sample" 2>&1 || fail "sample: $(cat "$T/sample")"

cat >"$T/none.lua" <<'EOF'
local mg <const> = require "megagen"
return mg.spec { name = "none", data = { packed = true }, batch = { micro = 1 },
  model = mg.decoder { vocab = 257, dim = 8, ctx = 8, mg.rmsnorm { name = "ln_f" } } }
EOF
exits 1 "$MEGAGEN" check "$T/none.lua"
has "$T/stderr" "data.packed: no attention layer"
