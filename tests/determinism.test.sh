# The same spec gives the same bytes: in another folder, locale, time zone and home, with other things in the environment,
# from another working directory; and of two at once. No path, date or name of the machine is in them.
# tier: quick
# limit: 100
. tests/lib/test.sh
spec=$TOP/tests/golden/gpt2.lua

emit() { "$MEGAGEN" show "$1" -p emit -o "$2" >/dev/null; }
equal() { diff -r "$1" "$2" >"$T/diff" || fail "$3: $(head -5 "$T/diff")"; }

mkdir -p "$T/home" "$T/Ünï cödé folder" "$T/copy"
emit "$spec" "$T/a"
locale=$(locale -a 2>/dev/null | grep -iE '^(de|tr|fr)' | head -1 || true)
(cd / && env -i PATH="$PATH" HOME="$T/home" TZ=Pacific/Kiritimati LC_ALL="${locale:-C.UTF-8}" LANG=tr_TR.UTF-8 USER=nobody \
    NAME=other COLUMNS=33 CFLAGS=-O0 SOURCE_DATE_EPOCH=1 "$MEGAGEN" show "$spec" -p emit -o "$T/Ünï cödé folder/b") >/dev/null ||
    fail "in another environment"
equal "$T/a" "$T/Ünï cödé folder/b" "another environment"

# The spec elsewhere: only its file name is in the text.
cp "$spec" "$T/copy/gpt2.lua"
emit "$T/copy/gpt2.lua" "$T/c"
equal "$T/a" "$T/c" "the spec in another folder"
(cd "$T/copy" && "$MEGAGEN" show "$T/copy/gpt2.lua" -p emit -o d >/dev/null)
equal "$T/a" "$T/copy/d" "a relative folder"

# No word of this machine in it.
for word in "$T" "$TOP" "$(date +%Y-%m)" "/$(id -un)/" "$(uname -n | grep .....)"; do
    [ -z "$word" ] || ! grep -rqF -- "$word" "$T/a" || fail "$word is in the output: $(grep -rlF -- "$word" "$T/a" | head -3)"
done

# Files are written only if they change.
touch -d "2001-01-01" "$T/a/funcs.c" "$T/a/model.h"
emit "$spec" "$T/a"
[ -z "$(find "$T/a/funcs.c" "$T/a/model.h" -newermt 2002-01-01)" ] || fail "equal files are written again"
"$MEGAGEN" show "$spec" train.lr=2e-3 -p emit -o "$T/a" >/dev/null
[ -z "$(find "$T/a/funcs.c" -newermt 2002-01-01)" ] || fail "a learning rate changes funcs.c"

# Two generations at once into one folder, and two with one cache: both whole.
emit "$spec" "$T/e" &
first=$!
emit "$spec" "$T/e"
wait $first || fail "two at once into one folder"
emit "$spec" "$T/f"
equal "$T/f" "$T/e" "two at once"
