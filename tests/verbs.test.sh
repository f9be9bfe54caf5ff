#!/usr/bin/env bash
# The verbs that look: new, why, explain, help, man, completion, doctor.
# tier: quick
. "$(dirname "$0")/lib/test.sh"

cd "$T" || exit 1
"$MEGAGEN" new mine >/dev/null || fail "new: exit $?"
"$MEGAGEN" new mine >/dev/null 2>&1 && fail "new: overwrote mine.lua"
"$MEGAGEN" new ../x >/dev/null 2>&1 && fail "new: took a path for a name"
"$MEGAGEN" check mine.lua >/dev/null || fail "check of the new spec: exit $?"
for from in $("$MEGAGEN" new --list); do
    "$MEGAGEN" new "my-$from" --from "$from" >/dev/null || fail "new --from $from: exit $?"
    "$MEGAGEN" check "my-$from.lua" --print-config >config || fail "check of my-$from.lua: exit $?"
    grep -q "^name *= *my-$from " config || fail "new --from $from: it is not named my-$from"
done

"$MEGAGEN" show mine.lua -p expand -o out >expand.mg || fail "show -p expand: exit $?"
grep -q '^func block fwd' expand.mg || fail "show -p expand: no Func block"
grep -q ' fused ' expand.mg && fail "show -p expand: a fused node before pass fuse"

"$MEGAGEN" mine.lua >first || fail "build: exit $?"
line=$(grep -n 'block_fwd(mg_ctx' out/mine/funcs.c | cut -d: -f1)
call=$(awk -v n="$line" 'NR > n && /_mm\(c, /{ print NR; exit }' out/mine/funcs.c)
"$MEGAGEN" why "out/mine/funcs.c:$call" >why || fail "why: exit $?"
grep -Eq '^spec +.*mine.lua:[0-9]+$' why || fail "why: no spec line in: $(cat why)"
grep -Eq '^pass +expand$' why || fail "why: the matmul is not of pass expand: $(cat why)"
"$MEGAGEN" why out/mine/funcs.c:999999 >/dev/null 2>&1 && fail "why: knows a line that is not there"

"$MEGAGEN" explain E0107 >text
grep -q '//' text || fail "explain E0107: no remedy"
for topic in keys layers ops codes; do
    "$MEGAGEN" help "$topic" >"$topic"
    [ "$(wc -l <"$topic")" -gt 10 ] || fail "help $topic: too short"
done
grep -q 'rmsnorm .*x\[.. d\], w\[d\] -> y' ops || fail "help ops: no rmsnorm"
"$MEGAGEN" man >megagen.1 || fail "man: exit $?"
"$MEGAGEN" completion bash >c.sh
bash -n c.sh || fail "completion bash: not bash"
for verb in run new check plan show data doctor why explain; do
    grep -qx ".B $verb" megagen.1 || fail "man: no verb $verb"
    grep -q "\b$verb\b" c.sh || fail "completion: no verb $verb"
done
grep -q '^.B train.lr' megagen.1 || fail "man: no key train.lr"
exits 2 "$MEGAGEN" completion csh
"$MEGAGEN" doctor >doctor || fail "doctor: exit $?"
grep -q '^C compiler *ok' doctor || fail "doctor: no C compiler in: $(cat doctor)"
