# The demo's judgement must be able to say no: to random bytes, to a model that sees only the present byte, to lr = 0.
# limit: 600
. tests/lib/test.sh
export DEMO_DIR=$T/demo
refused() { # what, arguments of the demo
    local what=$1 code=0
    shift
    bash examples/demo.sh "$@" >"$T/out" 2>&1 || code=$?
    [ $code = 1 ] || fail "$what: exit $code, expected 1: $(tail -5 "$T/out")"
    has "$T/out" "MISSED   held-out loss"
    echo "$what: $(grep -a '^MISSED' "$T/out" | tr '\n' ';')"
}
head -c 400000 /dev/urandom >"$T/noise"
refused "random bytes" "text=$T/noise" train.steps=40
refused "lr = 0" train.steps=20 train.lr=0
refused "window = 1" train.steps=200 window=1
