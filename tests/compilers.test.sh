#!/usr/bin/env bash
# compilers.test.sh: gcc and clang have nothing to say about generator, runtime, kernels and what is generated; and the hostile build, whose
# arenas move and whose vectors grow by one, generates the same bytes.
# limit: 600
. "$(dirname "$0")/lib/test.sh"
cd "$TOP" || exit
ALL="-Wall -Wextra -Wno-psabi -Werror"
./build.sh variant hostile >"$T/words" 2>&1 || fail "hostile: $(tail -5 "$T/words")"
for cc in gcc clang; do
    command -v $cc >/dev/null || continue
    ./build.sh variant strict $cc >"$T/words" 2>&1 || fail "$cc: $(grep -m5 'error:' "$T/words" || tail -5 "$T/words")"
done

export ASAN_OPTIONS=detect_leaks=0
for spec in tiny gpt2 llama3 qwen2; do
    "$MEGAGEN" show specs/$spec.lua -p emit -o "$T/$spec" >/dev/null
    build/hostile/megagen show specs/$spec.lua -p emit -o "$T/hostile" >/dev/null
    diff -r "$T/$spec" "$T/hostile" >"$T/words" || fail "specs/$spec.lua, hostile build: $(head -5 "$T/words")"
    rm -rf "$T/hostile"
done

# quiet DIR: the sources of a program, by both compilers.
quiet() {
    local cc f
    for cc in gcc clang; do
        command -v $cc >/dev/null || continue
        (cd "$1" && for f in *.c runtime/*.c; do
            # shellcheck disable=SC2086
            $cc -std=gnu11 -D_GNU_SOURCE -O2 $ALL -Iruntime -Ikernels -Ikernels/cpu -I. -march=haswell -c "$f" -o /dev/null || exit 1
        done) >"$T/words" 2>&1 || fail "$cc, $1: $(head -5 "$T/words")"
    done
}
for spec in tests/golden/*.lua; do
    dir=$T/golden.$(basename "$spec" .lua)
    "$MEGAGEN" show "$spec" -p emit -o "$dir" >/dev/null
    quiet "$dir"
done
"$MEGAGEN" show tests/golden/tiny.lua -p emit -o "$T/bf16" precision.compute=bf16 >/dev/null
quiet "$T/bf16"
