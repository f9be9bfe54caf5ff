#!/usr/bin/env bash
# fuzz.test.sh: parser and verify against mutated programs, in the hostile build under ASan and UBSan.
# MG_FUZZ_SECONDS sets the time (default 60); the seed is printed, the text of a crash is kept.
# limit: 600
. "$(dirname "$0")/lib/test.sh"
cd "$TOP" || exit
eval "$(./build.sh flags)"
./build.sh variant hostile >/dev/null
# shellcheck disable=SC2086 # flags are lists
$CC $STD $CFLAGS_LIBS $WARN -O1 -g -DMG_HOSTILE -fsanitize=address,undefined -fno-sanitize-recover=undefined -rdynamic \
    -o "$T/fuzz" tests/fuzz.c build/hostile/assets.o build/hostile/libgen.a build/hostile/libmg.a $LDLIBS -lm -ldl -pthread
seed=${MG_FUZZ_SEED:-1}
code=0
ASAN_OPTIONS=detect_leaks=0:log_path="$T/report" "$T/fuzz" "${MG_FUZZ_SECONDS:-60}" "$seed" "$T/last.mg" tests/pass/paper/*.mg || code=$?
if [ $code != 0 ]; then
    cp "$T/last.mg" build/fuzz-crash.mg
    cat "$T"/report* 2>/dev/null || true
    fail "seed $seed: exit $code; the text is in build/fuzz-crash.mg"
fi
