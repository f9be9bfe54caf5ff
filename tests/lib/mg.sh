#!/usr/bin/env bash
# mg.sh FILE.mg: what the `; test` comments of a program in the text form demand.
#
#   (none)                           accepted by parser and verify; what is printed parses and prints to itself
#   ; test: run FROM..TO             passes to run on it before the checks below; default none
#   ; test: count N WORD             the word occurs N times in the printed program (comments left out)
#   ; test: expect FUNC row N, map M of its fused nodes, N reduce along a row and M do not
#   ; test: has TEXT                 the printed program contains the text (blanks squeezed); `hasnt` is the opposite
#   ; test: refused TEXT             parser or verify or the passes refuse it, and the message contains the text
#   ; test: mutate SED => TEXT       the program changed by the sed command is refused with the text
#
# The folder is no meaning of its own: tests/pass/fuse holds programs for the pass fuse, tests/pass/paper the programs that
# the structures must be able to hold.
set -u
file=$1
out=${WORK:?}/$(echo "$file" | tr / _)
fail() {
    echo "$file: $*"
    exit 1
}
directive() { sed -n "s/^; test: *$1\( \|$\) *//p" "$file"; }
show() { timeout 20 "$MEGAGEN" show "$@"; }
squeeze() { sed -e 's/;.*//' "$1" | tr -s ' \t' ' '; }

. tests/lib/kinds.sh

passes=$(directive run)
refused=$(directive refused)
args=()
[ -z "$passes" ] || args=(-p "$passes")

if [ -n "$refused" ]; then
    show "$file" "${args[@]}" >"$out.got" 2>"$out.err" && fail "accepted, but it must be refused with: $refused"
    grep -qF -- "$refused" "$out.err" || fail "refused with other words: $(cat "$out.err")"
    exit 0
fi

show "$file" "${args[@]}" >"$out.mg" || fail "refused"
show "$out.mg" >"$out.again.mg" || fail "what was printed is refused"
diff -u "$out.mg" "$out.again.mg" || fail "what was printed prints differently"

squeeze "$out.mg" >"$out.flat"
while read -r n word; do
    [ -n "$n" ] || continue
    got=$(grep -ow -- "$word" "$out.flat" | wc -l)
    [ "$got" = "$n" ] || fail "expected $n $word, printed $got"
done < <(directive count)
while IFS= read -r text; do
    [ -n "$text" ] || continue
    got=$(kinds "$out.mg" "${text%% *}")
    [ "$got" = "${text#* }" ] || fail "expected ${text#* } in ${text%% *}, printed $got"
done < <(directive expect)
while IFS= read -r text; do
    grep -qF -- "$text" "$out.flat" || fail "not in the printed program: $text"
done < <(directive has)
while IFS= read -r text; do
    ! grep -qF -- "$text" "$out.flat" || fail "in the printed program: $text"
done < <(directive hasnt)
while IFS= read -r line; do
    change=${line%% => *} text=${line#* => }
    sed -e "/^; test:/!$change" "$file" >"$out.mutant.mg"
    cmp -s "$file" "$out.mutant.mg" && fail "the mutation changes nothing: $change"
    show "$out.mutant.mg" "${args[@]}" >/dev/null 2>"$out.err" && fail "the mutant is accepted: $change"
    grep -qF -- "$text" "$out.err" || fail "the mutant of '$change' is refused with other words: $(cat "$out.err")"
done < <(directive mutate)
exit 0
