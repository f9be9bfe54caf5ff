# Work of the first or the last micro batch only is guarded, and nothing else is; what adds overwrites in the first.
# tier: quick
# limit: 30
. tests/lib/test.sh
"$MEGAGEN" show tests/golden/tiny.lua -p plan >"$T/plain.mg"
sed -n '/^func block fwd/,/^end/p' "$T/plain.mg" | seen 'ops="swiglu"' || fail "no swiglu in the block"

emit() { # sed command: text of block_fwd
    sed "/^func block fwd/,/^end/{$1;}" "$T/plain.mg" >"$T/changed.mg"
    "$MEGAGEN" show "$T/changed.mg" -p emit..emit -o "$T/out" >/dev/null || fail "$1"
    sed -n '/^void block_fwd/,/^}/p' "$T/out/funcs.c" >"$T/text"
}

emit 's/x/x/'
! grep -q 'scalar.micro' "$T/text" || fail "a guard without need"
for when in first last; do
    emit "/ops=\"swiglu\"/s/ path=/ when=${when}_micro path=/"
    [ "$(grep -c 'scalar.micro' "$T/text")" = 1 ] || fail "guards of when=${when}_micro: $(grep -c 'scalar.micro' "$T/text")"
    grep -A1 'scalar.micro' "$T/text" | tail -1 | seen '^        mlp_swiglu(c, ' || fail "$when: another call is guarded"
    case $when in
    first) has "$T/text" "    if (c->scalar.micro == 0) {" ;;
    last) has "$T/text" "    if (c->scalar.micro + 1 == c->scalar.micros) {" ;;
    esac
done
grep -q 'mlp_down_dw(c, AT(c, k->mlp_down_grad), .*' "$T/out/funcs.c" || fail "no gradient of mlp.down"
sed -n '/^void block_bwd/,/^}/p' "$T/out/funcs.c" | grep -A2 'mlp_down_dw(' | seen 'c->scalar.micro > 0);' || fail "no beta"
