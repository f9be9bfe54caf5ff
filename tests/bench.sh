#!/usr/bin/env bash
# tests/bench.sh cpu [kernels | tiny | gpt2]...: how fast, as shares of this machine's fma peak. Not a test: it never fails
# on a number. Without names: all. MG_THREADS sets the workers. Needs the tool (./build.sh) for tiny and gpt2.
#
#   kernels   fma peak and copy rate, then every matmul and attention of tests/bench/shapes.h
#   tiny      specs/tiny.lua: tokens/s of the best and the median step, and the step's share of the peak
#   gpt2      specs/gpt2.lua, 124M, 4 rows of 64 tokens, f32: the same
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
usage() {
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 2
}
[ "${1:-}" = cpu ] || usage
shift
[ $# -gt 0 ] || set -- kernels tiny gpt2

CC=${CC:-gcc}
work=$(mktemp -d "${TMPDIR:-/tmp}/megagen-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

level=generic march=
if [ "$(uname -m)" = x86_64 ]; then
    march=-march=x86-64
    flags=$(grep -m1 '^flags' /proc/cpuinfo)
    case $flags in *fma*avx2*) level=avx2 march=-march=haswell ;; esac
    case $flags in *avx512vl*) level=avx512 march=-march=skylake-avx512 ;; esac
fi

driver() { # the bench of the kernels, compiled as generated code is
    [ ! -x "$work/kernels" ] || return 0
    # shellcheck disable=SC2086
    $CC -std=gnu11 -D_GNU_SOURCE -O2 -ffp-contract=fast $march -DMG_ISA=$level -c kernels/cpu/micro.c -o "$work/micro.o"
    # shellcheck disable=SC2086
    $CC -std=gnu11 -D_GNU_SOURCE -O2 -Wno-psabi $march -Iruntime -Ikernels/cpu -Itests -pthread tests/bench/kernels.c \
        runtime/pool.c "$work/micro.o" -o "$work/kernels"
}

peak() { # GFLOP/s, measured now: neighbours on a shared machine come and go
    driver
    "$work/kernels" nothing | sed -n 's/.*fma peak \([0-9.]*\).*/\1/p'
}

corpus() { # the project's own text: what the tokens are does not matter here
    [ ! -f "$work/text.bin" ] || return 0
    cat generator/*.[ch] runtime/*.[ch] kernels/cpu/*.[ch] >"$work/text.txt"
    ./megagen data prepare "$work/text.txt" -o "$work/text" >/dev/null
}

# trainer NAME STEPS SPEC KEY=VALUE...: compiles, trains, prints the rate
trainer() {
    local name=$1 steps=$2 start mflop
    shift 2
    corpus
    start=$(date +%s.%N)
    (cd "$work" && "$TOP/megagen" "$@" >"$name.log") || { cat "$work/$name.log" && return 1; }
    printf '%-8s spec to trainer %.1f s\n' "$name" "$(echo "$(date +%s.%N) $start" | awk '{ print $1 - $2 }')"
    mflop=$(awk '$1 == "compute" { print $3 == "GFLOP" ? 1000 * $2 : $2 }' "$work/$name.log")
    (cd "$work" && "$(sed -n 's/^trainer *//p' "$name.log")" data.train="$work/text" train.steps="$steps" save.every=0 \
        eval.every=0 >"$name.run" 2>&1) || { tail -5 "$work/$name.run" && return 1; }
    tr '\r' '\n' <"$work/$name.run" | sed -n 's/.* \([0-9.]*\)\(k\{0,1\}\) tok\/s.*/\1 \2/p' | awk '{ print $1 * ($2 == "k" ? 1000 : 1) }' |
        sed '$d' | sort -n | awk -v name="$name" -v mflop="$mflop" -v peak="$(peak)" '
        { rate[NR] = $1 }
        END {
            share = 100 * mflop * 1e6 / (peak * 1e9)
            printf "%-8s best %.0f tok/s (%.1f %% of the fma peak)   median %.0f tok/s (%.1f %%)   %.1f MFLOP a token\n", name,
                rate[NR], rate[NR] * share, rate[int((NR + 1) / 2)], rate[int((NR + 1) / 2)] * share, mflop
        }'
}

TOP=$PWD
for what in "$@"; do
    case $what in
    kernels) driver && "$work/kernels" ;;
    tiny) trainer tiny 60 "$TOP/specs/tiny.lua" ;;
    gpt2) trainer gpt2 10 "$TOP/specs/gpt2.lua" batch.micro=4 batch.seq=64 batch.global=4 ;;
    *) usage ;;
    esac
done
