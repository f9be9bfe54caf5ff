# Check 32: the update against the formula of AdamW, computed in f64 element by element: with the usual decays, with unusual ones and
# with none, at the first step (bias correction) and later, clipped and not, with and without weight decay. Decays and eps come from
# the spec's keys: a value that does not arrive shows as a large error.
. tests/lib/test.sh
. tests/lib/parity.sh
. tests/meta/lib.sh

check() { # NAME BETA1 BETA2 EPS
    local name=$1 word="beta1=$2 beta2=$3 eps=$4" words said
    model "$name" "train.beta1=$2" "train.beta2=$3" "train.eps=$4"
    for words in "step=1 wd=0 clip=0" "step=1 wd=0.1 clip=1" "step=7 wd=0.1 clip=1"; do
        # The second update starts from the moments that the first one left.
        # shellcheck disable=SC2086
        said=$(ask "$name" lr=1e-3 $word $words run adamw run adamw) || fail "$name $words: exit $?"
        awk '{ n++; if (!($1 <= 4)) bad = 1 } END { exit bad || n != 2 }' <<<"$said" || fail "$name $words: $said"
        echo "$name $words: $(tr '\n' ';' <<<"$said")"
    done
}
check usual 0.9 0.95 1e-8
check slow 0.8 0.999 1e-4
check none 0 0 1e-6

# The formula with another decay is not met: the comparison sees.
said=$(ask slow lr=1e-3 beta1=0.9 beta2=0.999 eps=1e-4 step=7 run adamw)
awk '{ exit !($1 > 100) }' <<<"$said" || fail "another beta1 makes no difference: $said"
# Without eps a weight that has no gradient, such as a padded row, would become 0 / 0.
exits 2 "$MEGAGEN" check tests/meta/edge.lua train.eps=0
has "$T/stderr" "train.eps"
