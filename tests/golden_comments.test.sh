# What a program is called, in comments and everywhere: no name can end a comment, open one, or form a trigraph, and the text
# still compiles. Names of the text form may hold any byte; those of specs are words.
# tier: quick
# limit: 60
. tests/lib/test.sh
: "${CC:=cc}"
"$MEGAGEN" show tests/golden/tiny.lua -p fuse >"$T/plain.mg"
bad='x*/ int oops; /*??/%s'
sed -E "s~path=(ln_1|attn) ~path=\"$bad\" ~g; s~name=tiny~name=\"$bad\"~" "$T/plain.mg" >"$T/bad.mg"
[ "$(grep -c 'int oops' "$T/bad.mg")" -gt 20 ] || fail "nothing changed"
"$MEGAGEN" show "$T/bad.mg" -p tune..emit -o "$T/out" >/dev/null || fail "refused"
flags=
eval "$(grep '^flags=' "$T/out/build.sh")"
for f in model funcs rows kernels products main; do
    # A comment that ends early leaves its words outside: the compiler's own view of the text has none of them.
    # shellcheck disable=SC2086
    (cd "$T/out" && $CC $flags -mavx512f -Wcomment -Werror=comment -trigraphs -E -P $f.c >"$T/$f.i" 2>"$T/$f.err") ||
        fail "$f.c: $(grep -m3 error "$T/$f.err")"
    ! grep -q 'int oops' <(grep -v '"' "$T/$f.i") || fail "$f.c: a name is code: $(grep -m2 'int oops' "$T/$f.i")"
done
grep -q 'int oops' "$T/out/rows.c" || fail "the name is not in rows.c"
# shellcheck disable=SC2086
(cd "$T/out" && $CC $flags -fsyntax-only model.c funcs.c main.c) || fail "does not compile"
