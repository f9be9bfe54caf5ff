# Generated objects hold no state: .data and .bss are empty, with each level of the processor and type. (Tables of pointers
# may lie in .data.rel.ro.)
# limit: 200
. tests/lib/test.sh
command -v readelf >/dev/null || skip "no readelf"
: "${CC:=cc}"

sections() { # object: bytes in .data*, .bss*, without relocated constants
    readelf -SW "$1" | sed 's/^ *\[ *[0-9]*\] *//' |
        awk '$1 ~ /^\.(data|bss|tdata|tbss)/ && $1 !~ /^\.data\.rel\.ro/ { printf "%s ", $5 }'
}

for what in "tiny cpu=avx512" "llama cpu=avx2" "gpt2 cpu=generic precision.compute=f64"; do
    read -ra arg <<<"$what"
    dir=$T/${arg[0]}
    "$MEGAGEN" show "tests/golden/${arg[0]}.lua" "${arg[@]:1}" -p emit -o "$dir" >/dev/null || fail "$what"
    flags='' march=''
    eval "$(grep -E '^(flags|march)=' "$dir/build.sh")"
    for f in model funcs rows kernels products main; do
        # shellcheck disable=SC2086
        (cd "$dir" && $CC $flags $march -O1 -c $f.c -o $f.o) || fail "$what: $f.c does not compile"
        for bytes in $(sections "$dir/$f.o"); do
            [ $((16#$bytes)) = 0 ] || fail "$what: $f.o has 0x$bytes bytes of state"
        done
    done
done

# The check sees what it looks for.
echo 'int a = 1; static int b[8]; int *f(void) { return &b[a]; }' | $CC -xc - -c -o "$T/state.o"
seen=
for bytes in $(sections "$T/state.o"); do [ $((16#$bytes)) = 0 ] || seen=$seen.; done
[ "$seen" = .. ] || fail "state in an object goes unseen"
