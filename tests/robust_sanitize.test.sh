#!/usr/bin/env bash
# robust_sanitize.test.sh: generated trainers, runtime and micro kernels under ASan and UBSan: train, evaluate, sample, resume, in each
# precision, for each shape of tests/torch; without a warning of gcc or clang; and threads under ThreadSanitizer.
# limit: 1200
. "$(dirname "$0")/lib/test.sh"
cd "$TOP" || exit
eval "$(./build.sh flags)"
SAN="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
ALL="-Wall -Wextra -Wno-psabi -Werror"
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
seq 1 4000 >"$T/text.txt"
"$MEGAGEN" data prepare "$T/text.txt" -o "$T/text" >/dev/null

# program DIR CC ARCHIVE FLAGS: what is generated, as its own build.sh compiles it, with more flags; the runtime from the archive.
program() {
    local dir=$1 cc=$2 lib=$3 flags=$4 march f contract
    march=$(sed -n 's/^march="\(.*\)"/\1/p' "$dir/build.sh")
    (
        cd "$dir" || exit
        sed -n 's/^compile \([a-z0-9_]*\) \1\.c *\(-ffp-contract=[a-z]*\).*/\1 \2/p' build.sh >parts
        echo "main -ffp-contract=off" >>parts
        while read -r f contract; do
            # shellcheck disable=SC2086
            "$cc" -std=gnu11 -D_GNU_SOURCE -pthread -Iruntime -Ikernels -Ikernels/cpu -I. $march "$contract" $flags -c "$f.c" -o "$f.o"
        done < <(sort -u parts)
    )
    # shellcheck disable=SC2086
    "$cc" $flags "$dir"/*.o "$lib" -lm -lpthread -o "$dir/trainer"
}
emit() { # CASE DIR key=value...
    local case=$1 dir=$2
    shift 2
    sed 's/vocab = [0-9]*/vocab = 257/' "tests/torch/$case.lua" >"$T/$case.lua" # bytes: samples are text
    "$MEGAGEN" show "$T/$case.lua" -s emit -o "$dir" "data.train=$T/text" "data.valid=$T/text" eval.every=2 eval.batches=2 save.every=2 \
        log.every=1 "$@" >"$dir.show" || fail "$case $*: $(tail -3 "$dir.show")"
}
clean() { # WHAT COMMAND...: it ends well and no sanitizer speaks
    local what=$1 code=0 said
    said=$(mktemp "$T/said.XXXXXX")
    shift
    "$@" >"$said" 2>&1 || code=$?
    [ $code = 0 ] || fail "$what: exit $code: $* : $(grep -am1 -A12 'ERROR: \|runtime error\|WARNING: Thread' "$said" || tail -5 "$said")"
}
exercise() { # DIR WHAT
    local d=$1 run=$1/run
    clean "$2" "$d/trainer" "out=$run" train.steps=3
    clean "$2, eval" "$d/trainer" eval "ckpt=$run"
    clean "$2, sample" "$d/trainer" sample "ckpt=$run" prompt=12 sample.tokens=20
    clean "$2, resume" "$d/trainer" "out=$run" train.steps=5
}
one() { # CASE DTYPE
    local d=$T/$1.$2
    emit "$1" "$d" "precision.compute=$2"
    program "$d" "$CC" build/asan/libmg.a "$SAN $ALL"
    exercise "$d" "$1 $2"
}
./build.sh variant asan >/dev/null
pids=()
for dtype in f32 bf16 f64; do
    for case in ${MG_CASES:-gpt2 llama qwen hetero}; do
        one "$case" $dtype &
        pids+=($!)
        [ ${#pids[@]} -lt 2 ] || { wait "${pids[0]}" || exit 1; pids=("${pids[@]:1}"); }
    done
done
for p in "${pids[@]}"; do wait "$p" || exit 1; done

# Three threads, under ThreadSanitizer.
./build.sh variant tsan >/dev/null
emit llama "$T/llama.tsan"
program "$T/llama.tsan" "$CC" build/tsan/libmg.a "-O1 -g -fsanitize=thread"
MG_THREADS=3 clean "llama, 3 threads" "$T/llama.tsan/trainer" "out=$T/llama.tsan/run" train.steps=3

# The other compiler has nothing to say either.
for cc in gcc clang; do
    command -v $cc >/dev/null || continue
    for case in ${MG_CASES:-gpt2 llama qwen hetero}; do
        d=$T/$case.bf16
        (cd "$d" && for f in *.c runtime/*.c; do
            # shellcheck disable=SC2086
            $cc -std=gnu11 -D_GNU_SOURCE $ALL -Iruntime -Ikernels -Ikernels/cpu -I. -march=haswell -fsyntax-only "$f" || exit 1
        done) >"$T/words" 2>&1 || fail "$cc, $case: $(head -5 "$T/words")"
    done
done
