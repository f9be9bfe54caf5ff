#!/usr/bin/env bash
# What may change only the last digits of a model in f64: how a global batch is cut into micro batches, with clipping active and not
# (checks 6 and 13), and who compiles the whole folder, its runtime included (22). Weights and moments after 5 steps are compared.
# The model has dropout, shared key-value heads, both norms, biases and a padded vocabulary. meta_bits.test.sh has the bitwise checks.
# limit: 400
. tests/lib/test.sh
. tests/lib/parity.sh
compare_build
"$MEGAGEN" data prepare README.md tests/README.md generator/README.md -o "$T/text" >/dev/null

# made NAME key=value...: a program in $T/NAME.
made() {
    local out=$T/$1
    shift
    "$MEGAGEN" tests/meta/factor.lua -o "$out" "data.train=$T/text" "$@" >"$out.log" 2>&1 || fail "$*: $(tail -3 "$out.log")"
}
# trained NAME RUN key=value...: runs it; the checkpoint's tensors are $T/RUN.st, the losses and norms $T/RUN.log.
trained() {
    local program=$T/$1/trainer run=$T/$2
    shift 2
    rm -rf "$run.d"
    "$program" "out=$run.d" resume=never log.every=1 save.every=0 "$@" >"$run.out" 2>&1 || fail "$*: $(tail -3 "$run.out")"
    cp "$run.d"/ckpt/*/model-00001.safetensors "$run.st"
    sed -n 's/.*\("loss": *[^,]*\).*\("gnorm": *[^,]*\).*/\1 \2/p' "$run.d/metrics.jsonl" >"$run.log"
    [ "$(wc -l <"$run.log")" = 5 ] || fail "$run: $(wc -l <"$run.log") lines, expected 5"
}
digits() { # what, run, run, relative
    "$COMPARE" "$T/$3.st" "$T/$2.st" "$4" >"$T/compared" || fail "$1: $(cat "$T/compared")"
    echo "$4  $1: $(cat "$T/compared")"
}

export MG_THREADS=1
# Dropout draws by the place of an element in the global batch: no factoring may change what it drops.
made f64 precision.compute=f64
trained f64 f64
trained f64 loose train.clip=1e9
! cmp -s "$T/f64.st" "$T/loose.st" || fail "13: clipping at 1.0 was never active"
for micro in 1 2 8; do
    made "f64.m$micro" precision.compute=f64 "batch.micro=$micro"
    trained "f64.m$micro" "m$micro"
    digits "6 f64: micro batches of $micro rows" f64 "m$micro" 1e-10
    trained "f64.m$micro" "loose$micro" train.clip=1e9
    digits "13 f64: the same, not clipped" loose "loose$micro" 1e-10
done
trained f64 other train.seed=7
! cmp -s "$T/f64.st" "$T/other.st" || fail "another seed gives the same bytes: the comparison is blind"

# 22: the folder's own build with other compilers and levels.
for cc in gcc clang; do
    command -v $cc >/dev/null 2>&1 || continue
    for level in -O0 -O2; do
        cp -r "$T/f64" "$T/f64.cc"
        rm -f "$T/f64.cc/trainer"
        CC=$cc CFLAGS=$level sh "$T/f64.cc/build.sh" >"$T/cc.log" 2>&1 || fail "22: $cc $level: $(tail -3 "$T/cc.log")"
        trained f64.cc cc
        digits "22 f64: $cc $level" f64 cc 1e-10
        rm -rf "$T/f64.cc"
    done
done
