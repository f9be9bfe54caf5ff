# Head and loss at their limits: the numbers in front are those of the list of numeric checks.
# limit: 120
. tests/lib/test.sh
. tests/lib/parity.sh
. tests/meta/lib.sh

for v in 2 59 64 257; do
    for multiple in 1 64; do
        model "v$v.$multiple" "V=$v" "multiple=$multiple"
        # 30: a head of zeros, and (39) logits that are all equal: ln V.
        ask "v$v.$multiple" set=head.w:0 run say >"$T/said"
        awk -v v="$v" '{ d = $1 / $2 - log(v) } END { exit !(NR == 1 && d < 1e-6 && d > -1e-6) }' "$T/said" ||
            fail "30: V = $v, multiple = $multiple: $(cat "$T/said")"
        # 39: logits of 1e4 and more: the loss is finite and grows as they do, exactly.
        run "v$v.$multiple" once scale=head.w:65536
        run "v$v.$multiple" twice scale=head.w:131072
        awk '{ l[NR] = $1 / $2 } END { exit !(l[1] > 1e3 && l[2] / l[1] > 1.999999 && l[2] / l[1] < 2.000001) }' \
            "$T/once.say" "$T/twice.say" || fail "39: V = $v: $(cat "$T/once.say" "$T/twice.say")"
    done
    echo "30, 39: V = $v"
done

# 44: rows of padding change nothing in the live ones, and stay zero in weights, gradients and moments. f64: sums over the vocabulary
# are cut by its size in memory.
for v in 2 59 257; do
    for m in 1 64; do
        model "w$m" "V=$v" "multiple=$m" precision.compute=f64
        run "w$m" "g$m"
        ask "w$m" lr=1e-2 wd=0.1 run upd run upd "weights=$T/u$m.st"
    done
    equal "44 V = $v padded to 64" g64 g1 1e-12
    "$COMPARE" "$T/u64.st" "$T/u1.st" 1e-10 >"$T/compared" || fail "44: V = $v, two updates: $(cat "$T/compared")"
    read -r n most <<<"$(ask w64 lr=1e-2 wd=0.1 run upd run upd padding)"
    [ "$n" -gt 0 ] && [ "$most" = 0 ] || fail "44: V = $v: of $n numbers behind the end the largest is $most"
done
