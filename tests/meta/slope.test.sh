# 27: differences of the loss of a whole model along one direction reach its gradient as the square of the step: the order between five
# steps in f64 is 2 within 0.1. A gradient that is a little wrong has order 0. Models without kinks; with dropout, and with it recomputed.
# limit: 120
. tests/lib/test.sh
. tests/lib/parity.sh
. tests/meta/lib.sh

# order SPEC KEY=VALUE...: four orders and the derivative are in $said.
order() {
    SPEC=$1 model m precision.compute=f64 "${@:2}"
    said=$(ask m slope)
    awk '{ for (i = 1; i <= 4; i++) if (!($i > 1.9 && $i < 2.1)) bad = 1 } END { exit bad || NR != 1 }' <<<"$said" ||
        fail "27: $*: orders $said"
    echo "27 $*: $said"
}
order tests/meta/edge.lua D=8
order tests/meta/edge.lua window=5 tied=1
order tests/meta/edge.lua D=7 E=5 rope=0
order tests/meta/factor.lua
order tests/meta/factor.lua remat=full
order tests/meta/packed.lua window=3
for m in gpt2 llama qwen user; do order tests/torch/$m.lua; done

# The comparison sees a gradient that is wrong by a part in ten thousand.
said=$(WORDS="fill=0.25 gscale=0.01" ask m wrong=1e-4 slope)
awk '{ exit !($1 < 1) }' <<<"$said" || fail "27: a wrong gradient goes unseen: $said"
