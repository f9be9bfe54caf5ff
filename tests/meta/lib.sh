# lib.sh: generated models on batches of a test's own making, by probe.c. After test.sh and parity.sh.
compare_build
CC=${CC:-cc}
# What the tests do not state is the same for all.
WORDS="fill=0.25"

# model NAME KEY=VALUE...: $T/NAME with its program `probe`; the spec is $SPEC or edge.lua. Only what is generated is compiled.
model() {
    local out=$T/$1 f flags contract march
    shift
    "$MEGAGEN" show "${SPEC:-tests/meta/edge.lua}" -p emit -o "$out" "$@" >"$out.mg" 2>"$out.err" || fail "$*: $(tail -3 "$out.err")"
    march=$(sed -n 's/^march="\(.*\)"/\1/p' "$out/build.sh")
    (
        cd "$out" || exit
        sed -n 's/^compile \([a-z0-9_]*\) \1\.c *\(-ffp-contract=[a-z]*\).*/\1 \2/p' build.sh >parts
        while read -r f contract; do
            # shellcheck disable=SC2086 # flags are a list
            "$CC" -std=gnu11 -O1 -Wno-psabi $march "$contract" -Iruntime -Ikernels -Ikernels/cpu -I. -c "$f.c" &
        done <parts
        wait
    )
    "$CC" -std=gnu11 -O1 -D_GNU_SOURCE -I "$out/runtime" tests/meta/probe.c "$out"/*.o build/release/libmg.a -lm -lpthread -o "$out/probe" ||
        fail "$* does not link"
}

# run NAME RUN WORD...: loss, count and norm are $T/RUN.say, gradients $T/RUN.st.
run() {
    local name=$1 to=$T/$2
    shift 2
    # shellcheck disable=SC2086 # words are a list
    "$T/$name/probe" $WORDS "$@" run say "grads=$to.st" >"$to.say" || fail "$name $*: exit $?"
    ! grep -qi 'nan\|inf' "$to.say" || fail "$name $*: $(cat "$to.say")"
}

# ask NAME WORD...: what the probe prints.
ask() {
    local name=$1
    shift
    # shellcheck disable=SC2086
    "$T/$name/probe" $WORDS "$@"
}

# equal CHECK RUN RUN REL: losses, counts and all gradients of the second run are those of the first; REL 0: equal numbers.
equal() {
    local a b n m _
    read -r a n _ <"$T/$2.say"
    read -r b m _ <"$T/$3.say"
    [ "$n" = "$m" ] || fail "check $1: $2 has $n targets, $3 has $m"
    near "$a" "$b" "$4"
    "$COMPARE" "$T/$2.st" "$T/$3.st" "$4" >"$T/compared" || fail "check $1: $2 ~ $3: $(cat "$T/compared")"
    printf '%-28s %s ~ %s: %s\n' "$1" "$2" "$3" "$(tail -1 "$T/compared")"
}

# unlike CHECK RUN RUN: the comparison has something to see.
unlike() {
    ! "$COMPARE" "$T/$2.st" "$T/$3.st" 1e-6 >"$T/compared" || fail "check $1: $2 and $3 have the same gradients"
}
