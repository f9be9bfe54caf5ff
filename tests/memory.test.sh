# The memory that `plan` says is the arena, and the arena is what a trainer takes. What does not fit is refused with exit 6, need, have
# and changes that were planned, not guessed: each is the arena of a program that is made so.
# tier: quick
# limit: 120
. tests/lib/test.sh
cat >"$T/wide.lua" <<'E2'
local mg <const> = require "megagen"
local D <const>, T <const> = mg.param("dim", 896), mg.param("ctx", 32)
local block = mg.block {
  mg.residual { mg.rmsnorm { name = "ln_1" }, mg.attention { name = "attn", heads = 8, rope = {} } },
  mg.residual { mg.rmsnorm { name = "ln_2" }, mg.swiglu { name = "mlp", hidden = 2 * D } },
}
return mg.spec { name = "wide", batch = { micro = 4, global = 4 }, train = { steps = 2, schedule = mg.constant {} },
  model = mg.decoder { vocab = 257, dim = D, ctx = T, mg.stack(2, block), mg.rmsnorm { name = "ln_f" } } }
E2

# bytes TEXT: "3.39 MiB" in bytes.
bytes() { echo "$1" | awk '{ u = index("BkMGT", substr($2, 1, 1)) - 1; printf "%.0f\n", $1 * 1024 ^ u }'; }
arena() { printf '%d\n' "$(sed -n 's/.*\.arena_bytes = \(0x[0-9a-f]*\),.*/\1/p' "$1/model.c")"; }
planned() { sed -n 's/^memory *//p' "$1"; }

# One program large enough that libc, stacks and the data are less than a part in a hundred.
"$MEGAGEN" "$T/wide.lua" -o "$T/wide" >"$T/plan"
near "$(bytes "$(planned "$T/plan")")" "$(arena "$T/wide")" 0.001
seq 1 500 >"$T/text.txt" && "$MEGAGEN" data prepare "$T/text.txt" -o "$T/text" >/dev/null
"$T/wide/trainer" "data.train=$T/text" "out=$T/run" >"$T/said" || fail "trainer: exit $?"
used=$(sed -n 's/^memory: \([0-9.]*\) MiB at most.*/\1/p' "$T/said")
[ "$(arena "$T/wide")" -gt 250000000 ] || fail "the arena is too small for this test"
scratch=16 # MG_SCRATCH_BYTES, touched as far as kernels need it
awk -v u="$used" -v a="$(arena "$T/wide")" -v s=$scratch 'BEGIN { a /= 2^20; exit !(u > 0.99 * a && u < 1.01 * (a + s)) }' ||
    fail "the trainer took $used MiB, planned were $(arena "$T/wide") bytes"

# Every change is what it says.
small() { "$MEGAGEN" plan "$T/wide.lua" dim=64 ctx=128 batch.micro=16 batch.global=16 "$@"; }
small >"$T/plan"
sed -n 's/^\(less\|    \) *\([0-9.]* [kMG]*iB\)  with \(.*\)/\2|\3/p' "$T/plan" >"$T/changes"
[ "$(wc -l <"$T/changes")" -ge 4 ] || fail "only $(wc -l <"$T/changes") changes: $(cat "$T/plan")"
for word in remat=full batch.micro=8 precision.compute=bf16; do grep -q "$word" "$T/changes" || fail "no change $word"; done
while IFS='|' read -r amount words; do
    # shellcheck disable=SC2086 # a list of words
    small $words >"$T/changed"
    [ "$(planned "$T/changed")" = "$amount" ] || fail "$words: said $amount, planned $(planned "$T/changed")"
done <"$T/changes"
# A global batch that nobody gave stays when the micro batch is halved.
"$MEGAGEN" plan tests/meta/packed.lua batch.micro=6 >"$T/plan"
has "$T/plan" "with batch.micro=3 batch.global=6"

# Refused: by run before anything is made, by the trainer before anything is touched; plan only says so.
need=$(small | sed -n 's/^memory *\([0-9.]*\) MiB/\1/p')
full=$(small remat=full | sed -n 's/^memory *\([0-9.]*\) MiB/\1/p')
limit=$(awk -v a="$need" -v b="$full" 'BEGIN { printf "%.0fkB", ((a + b) / 2 + 16) * 1048.576 }')
set -- dim=64 ctx=128 batch.micro=16 batch.global=16
"$MEGAGEN" "$T/wide.lua" "$@" -o "$T/small" >/dev/null
MG_MEMORY=$limit exits 6 "$T/small/trainer" "data.train=$T/text" "out=$T/none"
has "$T/stderr" "MiB of memory, "
grep -q "rebuilt with remat=full: .*, which fits" "$T/stderr" || fail "no change that fits: $(cat "$T/stderr")"
[ ! -e "$T/none" ] || fail "a refused trainer left a run folder"
MG_MEMORY=$limit exits 6 "$MEGAGEN" run "$T/wide.lua" "$@" "data.train=$T/text"
grep -q "help: remat=full: .*, which fits" "$T/stderr" || fail "run: no change that fits: $(cat "$T/stderr")"
MG_MEMORY=$limit exits 0 "$MEGAGEN" plan "$T/wide.lua" "$@"
has "$T/stderr" "warning[E0401]: training needs"
# The change that fits does train there.
"$MEGAGEN" "$T/wide.lua" "$@" remat=full -o "$T/less" >/dev/null
MG_MEMORY=$limit exits 0 "$T/less/trainer" "data.train=$T/text" "out=$T/fits" train.steps=1
