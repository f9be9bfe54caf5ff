#!/usr/bin/env bash
# What must not change a bit, and what may change only the last digits, on one small model that has everything: dropout, shared
# key-value heads, both norms, biases, a padded vocabulary. Weights, moments and the log after 5 steps are compared.
# Numbers are those of a list of known checks: 6 micro batches, 13 clipping, 15 recompute, 16 run to run, 17 threads, 22 compilers and
# levels, 23 poisoned memory, 41 scaling; and fusion on and off.
# limit: 400
. tests/lib/test.sh
. tests/lib/parity.sh
compare_build
"$MEGAGEN" data prepare README.md tests/README.md generator/README.md -o "$T/text" >/dev/null

# made NAME key=value...: a program in $T/NAME.
made() {
    local out=$T/$1
    shift
    "$MEGAGEN" tests/meta/bits.lua -o "$out" "data.train=$T/text" "$@" >"$out.log" 2>&1 || fail "$*: $(tail -3 "$out.log")"
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
bits() { # what, run, run
    same "$T/$2.st" "$T/$3.st"
    same "$T/$2.log" "$T/$3.log"
    echo "bitwise  $1"
}
digits() { # what, run, run, relative
    "$COMPARE" "$T/$3.st" "$T/$2.st" "$4" >"$T/compared" || fail "$1: $(cat "$T/compared")"
    echo "$4  $1: $(cat "$T/compared")"
}

export MG_THREADS=1
for dtype in f32 bf16; do
    made "$dtype" "precision.compute=$dtype"
    trained "$dtype" "$dtype"
    cmp -s "$T/$dtype.st" "$T/f32.st" || [ "$dtype" = bf16 ] || fail "bf16 and f32 give the same bytes"
    trained "$dtype" again
    bits "16 $dtype: the same run again" "$dtype" again
    MG_THREADS=2 trained "$dtype" two
    bits "17 $dtype: 2 threads" "$dtype" two
    MG_THREADS=3 trained "$dtype" three
    bits "17 $dtype: 3 threads" "$dtype" three
    MG_POISON=1 trained "$dtype" poison
    bits "23 $dtype: memory full of NaN" "$dtype" poison
    for change in remat=selective remat=full fuse=false; do
        made "$dtype.x" "precision.compute=$dtype" "$change"
        trained "$dtype.x" x
        bits "15 $dtype: $change" "$dtype" x
        rm -rf "$T/$dtype.x"
    done
done
trained f32 other train.seed=7
! cmp -s "$T/f32.st" "$T/other.st" || fail "another seed gives the same bytes: the comparison is blind"

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
for chunk in 19 4; do
    made f64.c precision.compute=f64 "batch.chunk=$chunk"
    trained f64.c c
    digits "6 f64: loss in chunks of $chunk tokens" f64 c 1e-10
    rm -rf "$T/f64.c"
done

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
