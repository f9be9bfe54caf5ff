# parity.sh: runs of the small models of tests/torch, for the tests that hold them against PyTorch. After test.sh.
# shellcheck disable=SC2034
CASES="gpt2 llama qwen tiny hetero user"
STEPS=100

# parity_run CASE DTYPE: trains in $T/CASE.DTYPE, which gets run/{weights,grads}-1.safetensors, run/marked-N.safetensors (the rows of
# step N) and loss (the loss of each step, one a line).
parity_run() {
    local case=$1 dtype=$2 dir=$T/$1.$2 dumps=weights@1,grads@1 i
    mkdir -p "$dir"
    seq 1 4000 >"$dir/text.txt"
    "$MEGAGEN" data prepare "$dir/text.txt" -o "$dir/text" >"$dir/log" 2>&1 || fail "data prepare: $(tail -3 "$dir/log")"
    "$MEGAGEN" "tests/torch/$case.lua" "precision.compute=$dtype" "data.train=$dir/text" -o "$dir/program" >"$dir/log" 2>&1 ||
        fail "$case $dtype does not compile: $(tail -5 "$dir/log")"
    for ((i = 1; i <= STEPS; i++)); do dumps=$dumps,marked@$i; done
    "$dir/program/trainer" "out=$dir/run" resume=never "train.steps=$STEPS" log.every=1 "dump=$dumps" >"$dir/log" 2>&1 ||
        fail "$case $dtype does not train: $(tail -5 "$dir/log")"
    sed -n 's/.*"loss": *\([-+.0-9e]*\).*/\1/p' "$dir/run/metrics.jsonl" >"$dir/loss"
    [ "$(wc -l <"$dir/loss")" = "$STEPS" ] || fail "$case $dtype: $(wc -l <"$dir/loss") losses, expected $STEPS"
}

# parity_losses GOT WANT REL: two files of numbers, one a line.
parity_losses() {
    paste "$1" "$2" | awk -v r="$3" '
        { d = $1 - $2; if (d < 0) d = -d; d = $2 ? d / ($2 < 0 ? -$2 : $2) : d; n++
          if (!(d <= worst)) { worst = d; at = NR } }
        END { printf "%d losses, worst relative difference %.3g at step %d (allowed %g)\n", n, worst, at, r
              exit !(n && worst <= r) }' || fail "losses of $1 and $2"
}

compare_build() { # sets COMPARE
    local STD WARN CFLAGS_LIBS LDLIBS LDLIBS_TEST AR
    eval "$(./build.sh flags)"
    COMPARE=$T/compare
    # shellcheck disable=SC2086
    $CC $STD $CFLAGS_LIBS -O1 tests/lib/compare.c -o "$COMPARE" $LDLIBS -lm
}

compare_grads() { # what, then the arguments of compare
    local what=$1
    shift
    "$COMPARE" "$@" >"$T/compared" || fail "gradients of $what: $(cat "$T/compared")"
    echo "$what: $(cat "$T/compared")"
}
