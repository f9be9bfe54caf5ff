# Two compilations at once with one empty cache give the same program as one alone; a third adds nothing to the cache; what
# lies in the cache half written or under another name is not taken for an object.
# limit: 240
. tests/lib/test.sh
export XDG_CACHE_HOME=$T/cache
spec=tests/golden/tiny.lua
"$MEGAGEN" $spec -o "$T/a" >"$T/a.log" 2>&1 &
first=$!
"$MEGAGEN" $spec -o "$T/b" >"$T/b.log" 2>&1 || fail "the second: $(tail -3 "$T/b.log")"
wait $first || fail "the first: $(tail -3 "$T/a.log")"
(cd "$T/cache" && find . -type f | sort | xargs cksum) >"$T/before"
[ -s "$T/before" ] || fail "nothing in the cache"
! grep -q '\.tmp' "$T/before" || fail "left behind: $(grep '\.tmp' "$T/before")"
"$MEGAGEN" $spec -o "$T/c" >"$T/c.log" 2>&1 || fail "the third: $(tail -3 "$T/c.log")"
(cd "$T/cache" && find . -type f | sort | xargs cksum) >"$T/after"
same "$T/before" "$T/after"
for dir in b c; do
    same "$T/a/trainer" "$T/$dir/trainer"
    diff -r "$T/a" "$T/$dir" >"$T/diff" || fail "$dir: $(head -3 "$T/diff")"
done
