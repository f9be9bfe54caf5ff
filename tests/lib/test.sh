# test.sh: helpers of the shell tests; `. tests/lib/test.sh` on the first line. $T is an empty folder of the test's own,
# $TOP the top of the tree, $MEGAGEN the tool.
set -euo pipefail
# shellcheck disable=SC2034 # used by the tests
T=${T:-$(mktemp -d)}

fail() {
    printf '%s:%s: %s\n' "${BASH_SOURCE[1]}" "${BASH_LINENO[0]}" "$*" >&2
    exit 1
}
skip() {
    printf '%s\n' "$*"
    exit 77
}
# exits CODE COMMAND...: the command ends with this exit code.
exits() {
    local want=$1 got=0
    shift
    "$@" >"$T/stdout" 2>"$T/stderr" || got=$?
    [ "$got" = "$want" ] || fail "exit $got, expected $want: $* : $(tail -5 "$T/stderr")"
}
# same A B: equal bytes.
same() { cmp "$1" "$2" || fail "$1 and $2 differ"; }
# near A B REL: two numbers agree.
near() { awk -v a="$1" -v b="$2" -v r="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; m = b < 0 ? -b : b; exit !(d <= r * m) }' ||
    fail "$1 is not within $3 of $2"; }
# seen PATTERN: standard input has it. grep -q would stop reading, and pipefail then takes the writer's SIGPIPE for a failure.
seen() { grep -e "$1" | cat >/dev/null; }
has() { grep -qF -- "$2" "$1" || fail "$1 does not contain: $2"; }
