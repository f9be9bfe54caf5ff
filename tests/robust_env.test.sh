#!/usr/bin/env bash
# robust_env.test.sh: the surroundings. Odd paths, no HOME, no cache, closed streams, few files, full disks, broken compilers, wrong words:
# the tool works, or ends with the exit code of its table and says why.
# limit: 300
. "$(dirname "$0")/lib/test.sh"
odd="$T/a b ü'\$x"
mkdir -p "$odd"
sed 's/steps = 100/steps = 3/' "$TOP/tests/torch/tiny.lua" >"$odd/my spec é.lua"
cp "$odd/my spec é.lua" "$T/t.lua"
seq 1 4000 >"$odd/my text.txt"
cd "$T" || exit
export XDG_CACHE_HOME=$T/cache
log() { (cd "$1" && sed 's/.*"loss": *\([-+.0-9e]*\).*/\1/' metrics.jsonl); }

# Spaces, quotes, a dollar and UTF-8 in every path.
exits 0 "$MEGAGEN" data prepare "$odd/my text.txt" -o "$odd/da ta"
exits 0 "$MEGAGEN" "$odd/my spec é.lua" "data.train=$odd/da ta" -o "$odd/o ut"
exits 0 "$odd/o ut/trainer" "out=$odd/r un" log.every=1
[ "$(log "$odd/r un" | wc -l)" -ge 3 ] || fail "no metrics in a folder with an odd name"
exits 0 "$MEGAGEN" why "$odd/o ut/funcs.c:20"

# The folder by itself: its own build.sh and a C compiler on the PATH give the same losses; nothing of this machine is in it.
mkdir bin
for tool in "${CC:-cc}" sh mkdir as ld; do
    path=$(command -v "$tool") && ln -s "$path" "bin/$([ "$tool" = "${CC:-cc}" ] && echo cc || echo "$tool")"
done
cp -r "$odd/o ut" alone
rm -rf alone/trainer alone/obj alone/build.log
exits 0 env -i PATH="$T/bin" sh alone/build.sh
exits 0 env -i PATH="$T/bin" alone/trainer "data.train=$odd/da ta" "out=$T/again" log.every=1
[ "$(log "$odd/r un")" = "$(log "$T/again")" ] || fail "its own build trains other losses: $(log "$odd/r un") and $(log "$T/again")"
rm -rf alone/obj alone/trainer
# The path of the data is the user's own value and stands among the keys, so another folder is made for this look.
exits 0 "$MEGAGEN" show t.lua -p emit
exits 0 env TZ=Asia/Tokyo LC_ALL=C.UTF-8 "$MEGAGEN" t.lua -o clean
rm -rf clean/trainer clean/build.log clean/obj
! grep -rlaE "$T|$TOP|/home/|/root\b|C\.UTF|Tokyo|20[0-9][0-9]-[01][0-9]-[0-3]" clean >found || fail "something of this machine is in: $(cat found)"
# Only headers of libc: what else is included comes from the folder.
(cd clean && for f in *.c runtime/*.c; do
    "${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -H -fsyntax-only -Wno-psabi -Iruntime -Ikernels -Ikernels/cpu -I. "$f" 2>&1 || echo "FAILED $f"
done) | sed -n 's/^\.\+ //p; /FAILED\|error:/p' | grep -v '^/usr/include/\(bits\|sys\|gnu\|asm\|asm-generic\|linux\|x86_64-linux-gnu\|aarch64-linux-gnu\)/\|/lib/\(gcc\|llvm\)' |
    sort -u >included
while read -r h; do
    case $h in
    /usr/include/*) [ -z "$(command -v dpkg)" ] || dpkg -S "$h" 2>/dev/null | seen '^libc6\|^linux-libc' || fail "$h is not of libc" ;;
    /* | *error:* | FAILED*) fail "included: $h" ;;
    esac
done <included
[ -s included ] || fail "no header was seen"

# HOME, caches, folders that cannot be written (for root too, hence /dev/null and /proc).
exits 0 env -u HOME -u XDG_CACHE_HOME "$MEGAGEN" t.lua -o nohome
exits 0 env XDG_CACHE_HOME=/dev/null/x HOME=/dev/null "$MEGAGEN" t.lua -o nocache
(cd /sys && exits 0 "$MEGAGEN" run "$T/t.lua" "data.train=$odd/da ta" train.steps=1)

# run hands the trainer's own words on to it: the run has the folder it was told, and goes on from there.
exits 0 "$MEGAGEN" run t.lua "data.train=$odd/da ta" train.steps=1 out=mine --quiet
[ -s mine/metrics.jsonl ] || fail "run out=mine: $(ls mine 2>&1)"
exits 0 "$MEGAGEN" run t.lua "data.train=$odd/da ta" train.steps=2 resume=mine
has "$T/stdout" "step 2"
exits 7 "$MEGAGEN" t.lua -o /proc/x
exits 7 "$MEGAGEN" t.lua -o "$T/t.lua/x"

# Streams and limits.
exits 0 bash -c 'exec "$0" t.lua -o closed <&- >&-' "$MEGAGEN"
exits 0 bash -c 'exec "$0" check t.lua <&- >&- 2>&-' "$MEGAGEN"
exits 0 bash -c 'exec closed/trainer "data.train=$0" out=closed_run <&- >&- 2>&-' "$odd/da ta"
exits 0 bash -c 'ulimit -n 64; exec "$0" t.lua -o n64' "$MEGAGEN"
exits 0 bash -c 'ulimit -n 64; exec n64/trainer "data.train=$0" out=n64_run' "$odd/da ta"
[ "$(log closed_run)" = "$(log n64_run)" ] || fail "closed streams train other losses"
"$MEGAGEN" show t.lua 2>said | head -1 >/dev/null || true
[ ! -s said ] || fail "a reader that has seen enough: $(cat said)"
code=0
"$MEGAGEN" plan t.lua >/dev/full 2>said || code=$?
[ $code = 7 ] || fail "a full standard output: exit $code"
exits 7 bash -c 'ulimit -f 20; exec "$0" t.lua -o full' "$MEGAGEN"
has stderr "cannot write full/"
exits 7 bash -c 'ulimit -f 20; exec closed/trainer "data.train=$0" out=full_run train.steps=2 save.every=1' "$odd/da ta"

# Words and compilers.
exits 2 "$MEGAGEN" check t.lua no.key=1
has stderr "no key and no mg.param 'no.key'"
exits 2 "$MEGAGEN" t.lua train.lr=abc
exits 2 "$MEGAGEN" run t.lua no.key=1
exits 2 "$MEGAGEN" t.lua --no-flag
exits 2 "$MEGAGEN"
exits 2 closed/trainer no.key=1
exits 3 env CC=/nonexistent/cc "$MEGAGEN" t.lua -o nocc
exits 3 env -u CC PATH=/nonexistent "$MEGAGEN" t.lua -o nocc
printf '#!/bin/sh\necho boom >&2\nexit 1\n' >badcc
chmod +x badcc
exits 4 env CC="$T/badcc" "$MEGAGEN" t.lua -o badcc_out
has stderr "badcc_out/build.log"
has badcc_out/build.log boom
exits 1 "$MEGAGEN" check not_there.lua
exits 1 "$MEGAGEN" check "$T"
exits 5 closed/trainer data.train=/nonexistent out=x_run
