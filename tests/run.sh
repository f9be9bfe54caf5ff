#!/usr/bin/env bash
# tests/run.sh [quick | peers | --update] [NAME...]: find tests by suffix, run them, count them. Called by ./build.sh test.
#
#   tests/unit_*.c             cmocka programs, built with ASan and UBSan
#   tests/pass/**/X.mg         a program in the text form; its `; test` comments say what must hold (tests/lib/mg.sh)
#   tests/err/X.lua + X.txt    a bad spec and the message it must give, with the exit code
#   tests/golden/X.lua + X/    a spec and the text that must be generated from it
#   tests/**/X.test.sh         a shell test: exit 0 passed, 77 skipped (the last line says why), else failed
#
# A shell test with a line `# tier: quick` runs in the quick tier too, one with `# tier: peers` only in the peers tier.
# --update NAME writes the goldens of err and golden tests anew; look at the diff before you commit it.
set -uo pipefail
shopt -s nullglob globstar
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 3
export LC_ALL=C TOP=$PWD MEGAGEN=$PWD/megagen
# Two tests run at a time; trainers of two threads each would wait for one another at every barrier. No result depends on it.
export MG_THREADS=${MG_THREADS:-1}

tier=full update=
case ${1:-} in
quick | peers) tier=$1 && shift ;;
--update) update=1 && shift ;;
esac
names=("$@")

work=$(mktemp -d "${TMPDIR:-/tmp}/megagen-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export UPDATE=$update WORK=$work

# Whole runs take turns on a machine: two at once would only measure each other.
if [ ${#names[@]} = 0 ] && command -v flock >/dev/null 2>&1; then
    exec 7>"${TMPDIR:-/tmp}/megagen-test.$(id -u).lock"
    flock -n 7 || { echo "waiting for another test run on this machine" && flock 7; }
fi

tier_of() { sed -n 's/^# tier: *//p' "$1" | sed -n 1p; }

wanted() { # path, tier of the test
    local n
    if [ ${#names[@]} -gt 0 ]; then
        for n in "${names[@]}"; do case $1 in *"$n"*) return 0 ;; esac done
        return 1
    fi
    case $tier in
    quick) [ "$2" = quick ] ;;
    peers) [ "$2" = peers ] ;;
    *) [ "$2" != peers ] ;;
    esac
}

list() {
    local f
    for f in tests/**/*.test.sh; do wanted "$f" "$(tier_of "$f")" && echo "sh $f"; done
    for f in tests/unit_*.c; do wanted "$f" quick && echo "unit $f"; done
    for f in tests/pass/**/*.mg; do wanted "$f" quick && echo "mg $f"; done
    for f in tests/err/*.lua; do wanted "$f" quick && echo "err $f"; done
    for f in tests/golden/*.lua; do wanted "$f" quick && echo "golden $f"; done
    return 0
}

limit() { sed -n 's/^# limit: *//p' "$1" | sed -n 1p; } # seconds of a shell test, default 300

run_unit() {
    local bin log
    bin=build/asan/$(basename "$1" .c)
    log=$bin.log
    [ -x "$bin" ] || { cat "$log" 2>/dev/null; return 1; }
    ASAN_OPTIONS=detect_leaks=0 CMOCKA_MESSAGE_OUTPUT=stdout timeout 120 "$bin"
}

run_sh() {
    local t
    t=$(limit "$1")
    mkdir -p "$WORK/tmp.$2"
    T=$WORK/tmp.$2 timeout "${t:-300}" bash "$1"
}

# A golden message: everything the check prints, then its exit code.
run_err() {
    local want=${1%.lua}.txt got=$WORK/$2.txt code=0
    timeout 10 "$MEGAGEN" check "$1" >"$got" 2>&1 || code=$?
    echo "exit $code" >>"$got"
    [ "$code" != 0 ] || { echo "accepted, but it must be refused"; return 1; }
    [ -z "$UPDATE" ] || cp "$got" "$want"
    diff -u "$want" "$got"
}

# The first line of a golden spec names its files: `-- golden: FILE...`. The hash of the program is no part of them.
run_golden() {
    local want=${1%.lua} got=$WORK/golden.$2 f code=0 files
    files=$(sed -n '1s/^-- golden: *//p' "$1")
    [ -n "$files" ] || { echo "no \`-- golden: FILE...\` on the first line"; return 1; }
    timeout 60 "$MEGAGEN" show "$1" -p emit -o "$got" >/dev/null || return 1
    for f in $files; do
        sed 's/program `*[0-9a-f]\{16\}`*/program HASH/; s/\.hash = "[0-9a-f]*"/.hash = "HASH"/' "$got/$f" >"$got/$f.golden"
        if [ -n "$UPDATE" ]; then mkdir -p "$want" && cp "$got/$f.golden" "$want/$f"; fi
        diff -u "$want/$f" "$got/$f.golden" || code=1
    done
    return $code
}

run_mg() { bash tests/lib/mg.sh "$1"; }

# One test: its output in a log, one line about it, its result in a file.
one() { # number, kind, path
    local log=$WORK/$1.log code=0 t0=$EPOCHREALTIME dt word
    "run_$2" "$3" "$1" >"$log" 2>&1 </dev/null || code=$?
    dt=$(awk -v a="$t0" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }')
    case $code in 0) word=PASS ;; 77) [ "$2" = sh ] && word=SKIP || word=FAIL ;; *) word=FAIL ;; esac
    echo "$word" >"$WORK/$1.result"
    {
        printf '%s  %-52s %6s s' "$word" "${3#tests/}" "$dt"
        [ $word != SKIP ] || printf '   %s' "$(tail -1 "$log")"
        printf '\n'
        if [ $word = FAIL ]; then
            [ $code != 124 ] || echo "    it ran out of time"
            tail -${TAIL:-30} "$log" | sed 's/^/    /'
        fi
    } >"$WORK/$1.line"
    cat "$WORK/$1.line"
}

mapfile -t tests < <(list)
if [[ " ${tests[*]}" == *" unit "* ]]; then
    units=()
    for t in "${tests[@]}"; do case $t in unit\ *) units+=("${t#unit }") ;; esac done
    ./build.sh units "${units[@]}" || echo "building the unit tests failed"
fi

n=0
for t in "${tests[@]}"; do
    n=$((n + 1))
    while [ "$(jobs -rp | wc -l)" -ge "${MG_JOBS:-2}" ]; do wait -n; done
    one $n "${t%% *}" "${t#* }" &
done
wait

count() { cat "$work"/*.result 2>/dev/null | grep -c "$1"; }
passed=$(count PASS) failed=$(count FAIL) skipped=$(count SKIP)
if [ "$failed" -gt 0 ]; then
    echo
    grep -h '^FAIL' "$work"/*.line
fi
if [ "$skipped" -gt 0 ]; then
    echo
    grep -h '^SKIP' "$work"/*.line
fi
[ $n -gt 0 ] || { echo "no test matches: ${names[*]:-$tier}" && failed=1; }
printf '%d passed, %d failed' "$passed" "$failed"
[ "$skipped" = 0 ] || printf ', %d skipped' "$skipped"
printf '\n'
[ "$failed" = 0 ]
