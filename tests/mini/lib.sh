# lib.sh: what the tests of the hand-written model share. Builds $T/mini and the files $T/train, $T/valid.
. "$TOP/tests/lib/test.sh"
cd "$TOP" || exit
eval "$(./build.sh flags)"

mini_build() { # output, flags...
    local out=$1 src
    shift
    src=$(ls runtime/*.c | grep -v /prep.c)
    # shellcheck disable=SC2086
    $CC $STD $WARN $CFLAGS_LIBS -g -ffp-contract=off "$@" tests/mini/model.c $src -o "$out" -lm
}

# Every .c file of the runtime but the last is trained on; 500 bytes are enough to be different.
mini_data() {
    cat runtime/conf.c runtime/data.c >"$T/train.txt"
    cat runtime/log.c >"$T/valid.txt"
    "$MEGAGEN" data prepare --split-lines-empty "$T/train.txt" -o "$T/train" >/dev/null
    "$MEGAGEN" data prepare "$T/valid.txt" -o "$T/valid" >/dev/null
}

# What a log says of a run, without the times.
metrics() { sed 's/,"tokens_per_s.*//' "$1/metrics.jsonl"; }
