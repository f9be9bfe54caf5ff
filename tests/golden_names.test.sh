# Other names of layers, weights and the model change names only: with every name replaced by a number in the order of first
# occurrence, and comments and blanks left out, both texts are the same. (The site of random numbers is a hash of a name.)
# tier: quick
# limit: 60
. tests/lib/test.sh

# Names that a spec gives, longest first, so that none is replaced inside another.
rename() {
    sed -e 's/name *= "ln_1"/name = "first_norm"/; s/name *= "ln_2"/name = "wide_norm"/; s/name *= "ln_f"/name = "last"/' \
        -e 's/name = "attn"/name = "looks"/; s/name = "mlp"/name = "thinks"/; s/^  name  = "[a-z0-9]*"/  name = "other"/' "$1"
}
# Tokens of C, numbered by first occurrence if they are names; strings count as names, too.
shape() {
    awk '{ sub(/ *\/\*.*\*\//, ""); print }' "$1" | awk '/\/\*/ { skip = 1 } !skip { print } /\*\// { skip = 0 }' |
        sed 's/a->site ^ 0x[0-9a-f]\{8\}u/a->site ^ SITE/' | grep -oE '"[^"]*"|[A-Za-z_][A-Za-z_0-9]*|[0-9][0-9a-zA-Z.+-]*|[^A-Za-z_0-9" ]' |
        awk '/^["A-Za-z_]/ { if (!($0 in id)) id[$0] = ++n; print "name " id[$0]; next } { print }'
}

for spec in tiny gpt2 llama; do
    rename tests/golden/$spec.lua >"$T/$spec.lua"
    ! cmp -s tests/golden/$spec.lua "$T/$spec.lua" || fail "nothing renamed"
    "$MEGAGEN" show tests/golden/$spec.lua -p emit -o "$T/a" >/dev/null
    "$MEGAGEN" show "$T/$spec.lua" -p emit -o "$T/b" >/dev/null
    grep -q 'looks_qkv_mm(c' "$T/b/funcs.c" || fail "$spec: the new name is not in the text"
    ! grep -q 'attn_qkv\|ln_1\|\bmlp_' "$T/b/funcs.c" "$T/b/model.h" || fail "$spec: an old name is in the text"
    for f in funcs.c rows.c kernels.c products.c; do
        shape "$T/a/$f" >"$T/a.shape"
        shape "$T/b/$f" >"$T/b.shape"
        diff "$T/a.shape" "$T/b.shape" >"$T/diff" || fail "$spec/$f: names change more than names: $(head -8 "$T/diff")"
    done
done

# A change of more than names is seen.
sed 's/hidden = 96/hidden = 80/' "$T/tiny.lua" >"$T/wider.lua"
"$MEGAGEN" show "$T/wider.lua" -p emit -o "$T/b" >/dev/null
"$MEGAGEN" show tests/golden/tiny.lua -p emit -o "$T/a" >/dev/null
shape "$T/a/rows.c" >"$T/a.shape" && shape "$T/b/rows.c" >"$T/b.shape"
! cmp -s "$T/a.shape" "$T/b.shape" || fail "another width goes unseen"
