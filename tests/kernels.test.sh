#!/usr/bin/env bash
# unit_kernels.c on every feature level this machine has (clang: the best one), under TSan; each
# kernel file compiles alone; the register tiles are made of fma on registers.
# limit: 900
. "$(dirname "$0")/lib/test.sh"
cd "$TOP" || exit
warn="-std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror"
inc="-Iruntime -Ikernels/cpu -Itests -pthread"

levels="generic:-march=x86-64"
case $(uname -m) in
x86_64)
    flags=$(grep -m1 '^flags' /proc/cpuinfo)
    case $flags in *fma*avx2*) levels="$levels avx2:-march=haswell" ;; esac
    case $flags in *avx512vl*) levels="$levels avx512:-march=skylake-avx512" ;; esac
    all="avx2:-march=haswell avx512:-march=skylake-avx512"
    ;;
*) levels="generic:" all="" ;;
esac

compilers=
for cc in gcc clang; do command -v "$cc" >/dev/null && compilers="$compilers $cc"; done

# compile CC NAME LEVEL FLAGS...: $T/NAME from unit_kernels.c, pool and tiles
compile() {
    local cc=$1 out=$T/$2 level=${3%%:*} march=${3#*:}
    shift 3
    # shellcheck disable=SC2086
    $cc $warn $inc -O2 -ffp-contract=fast $march "$@" -DMG_ISA="$level" -c kernels/cpu/micro.c -o "$out.micro.o" &&
        $cc $warn $inc -O1 -g $march "$@" tests/unit_kernels.c runtime/pool.c "$out.micro.o" -o "$out" -lm 2>"$out.log" ||
        fail "$cc $level: $(grep -m3 error "$out.log")"
}

for cc in $compilers; do
    for f in gemm attn embed pack micro; do
        # shellcheck disable=SC2086
        $cc $warn $inc -O2 -x c -fsyntax-only kernels/cpu/$f.h 2>"$T/log" || fail "$f.h alone: $(grep -m3 error "$T/log")"
    done
    for level in $levels; do
        [ "$cc" = gcc ] || [ "$level" = "${levels##* }" ] || continue
        compile "$cc" "unit_$cc" "$level"
        "$T/unit_$cc" || fail "$cc ${level%%:*}"
    done
done

cc=${compilers##* }
cc=${compilers%% "$cc"}
cc=${cc# }
compile "$cc" tsan "${levels##* }" -fsanitize=thread
TSAN_OPTIONS=exitcode=66 "$T/tsan" || fail "ThreadSanitizer"

# Two accumulators a row, all in registers: no vector goes to the stack in the largest tile.
if command -v objdump >/dev/null; then
    for cc in $compilers; do
        for level in $all; do
            # shellcheck disable=SC2086
            $cc $warn -O2 -ffp-contract=fast ${level#*:} -DMG_ISA="${level%%:*}" -c kernels/cpu/micro.c -o "$T/tiles.o"
            rows=6
            [ "${level%%:*}" != avx512 ] || rows=14
            objdump -d --no-show-raw-insn "$T/tiles.o" | awk -v rows=$rows -v what="$cc ${level%%:*}" '
                /^[0-9a-f]+ <.*>:$/ { in_tile = $2 ~ "_" rows ">" }
                in_tile && /vfmadd/ { fma++ }
                in_tile && /vmov[a-z]+ .*mm[0-9]+,.*\(%r[sb]p/ { spill++ }
                END { if (fma != 4 * 2 * rows || spill) { print what ": " fma + 0 " fma, " spill + 0 " spills"; exit 1 } }' ||
                fail "tiles"
        done
    done
fi
