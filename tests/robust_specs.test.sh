#!/usr/bin/env bash
# robust_specs.test.sh: mutated specs end in files or in a message: no crash, no hang, no exit code outside the table.
# MG_FUZZ_SPECS sets their number (default 2000; a tenth of them runs in the hostile build under ASan and UBSan too),
# MG_FUZZ_SEED the seed. What fails is kept in build/fuzz-spec*.
# limit: 900
. "$(dirname "$0")/lib/test.sh"
cd "$TOP" || exit
eval "$(./build.sh flags)"
./build.sh variant hostile >/dev/null
n=${MG_FUZZ_SPECS:-2000} seed=${MG_FUZZ_SEED:-1}
hostile="-DMG_HOSTILE -fsanitize=address,undefined -fno-sanitize-recover=undefined"

driver() { # NAME FLAGS VARIANT
    # shellcheck disable=SC2086 # flags are lists
    $CC $STD $CFLAGS_LIBS -Itests $WARN -O1 -g $2 -rdynamic -o "$T/$1" tests/fuzz_spec.c "build/$3/assets.o" "build/$3/libgen.a" \
        "build/$3/libmg.a" $LDLIBS -lm -ldl -pthread
}
fuzz() { # NAME COUNT SEED
    mkdir -p "$T/$1.$3"
    cp examples/*.h "$T/$1.$3"
    ASAN_OPTIONS=detect_leaks=0:exitcode=99 "$T/$1" "$2" "$3" "$T/$1.$3" "${seeds[@]}" || {
        mkdir -p build/fuzz-spec
        cp "$T/$1.$3"/{spec.lua,said} build/fuzz-spec/
        tail -20 "$T/$1.$3/said"
        fail "$1, seed $3: the spec and what was said about it are in build/fuzz-spec"
    }
}
good=(specs/*.lua examples/*.lua tests/torch/*.lua)
seeds=()
for _ in {1..16}; do seeds+=("${good[@]}"); done # most mutants of a good spec are nearly good
for f in tests/err/*.lua; do case $f in *bomb* | *endless*) ;; *) seeds+=("$f") ;; esac done
driver plain "" release &
driver hostile "$hostile" hostile &
wait
fuzz plain $((n / 2)) "$seed" &
half=$!
fuzz plain $((n - n / 2)) $((seed + 1))
wait $half
fuzz hostile $((n / 10)) $((seed + 2))
