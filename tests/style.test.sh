# The order of includes, the format, and words that do not belong here.
# tier: quick
. tests/lib/test.sh
bad=0
complain() {
    [ -z "$2" ] || { printf '%s:\n%s\n' "$1" "$2" && bad=1; }
}
files() { git ls-files -- "$@" 2>/dev/null || find "$@" -type f; }

# ---- who may include whom
quoted() { grep -nE '^ *# *include "' "$@" 2>/dev/null || true; }
# A pass in several files has a private header, which only they include: text.h is of text.c and parse.c.
complain "generator/ includes only megagen.h, mg.h and the private header of the same pass" \
    "$(quoted generator/*.[ch] | grep -vE '"(megagen|mg)\.h"' |
        grep -vE '^generator/(emit[a-z_]*\.[ch]:.*"emit_int|lua[a-z_]*\.[ch]:.*"lua_int|loop[a-z_]*\.[ch]:.*"loopgen|parse[a-z_]*\.[ch]:.*"(parse|text)|text\.c:.*"text|verify[a-z_]*\.[ch]:.*"verify)\.h"' || true)"
complain "only lua*.c and lua_int.h include Lua's headers" \
    "$(grep -lE '# *include [<"](lua|lauxlib|lualib)' generator/*.[ch] | grep -vE 'generator/lua[^/]*$' || true)"
complain "runtime/ includes nothing of generator/" "$(quoted runtime/*.[ch] | grep -E 'megagen\.h|lua_int|generator/' || true)"
complain "kernels/ include only mgk.h, mg.h and each other" \
    "$(quoted kernels/cpu/*.[ch] | grep -E 'megagen\.h|generator/|runtime/' || true)"
complain "no intrinsics header in what is generated or instantiated" "$(grep -nE 'immintrin|x86intrin' kernels/cpu/*.h templates/* 2>/dev/null || true)"

# ---- text
complain "tabs in C, Lua or templates" "$(files '*.c' '*.h' '*.lua' '*.lt' | xargs -r grep -nP '\t' | head -20 || true)"
complain "blanks at the end of a line" "$(files '*.c' '*.h' '*.lua' '*.lt' '*.sh' '*.md' | xargs -r grep -nE ' +$' | head -20 || true)"
complain "paths or words of one workplace" \
    "$(files . | grep -v 'style.test.sh$' | xargs -r grep -nIE '/wor[k]/|this sessio[n]|wt-[a-z]+ branc[h]' | head -20 || true)"
complain "TODO without an issue number" "$(files '*.c' '*.h' '*.lua' | xargs -r grep -nE '\b(TODO|FIXME|XXX)\b' | grep -v '#[0-9]' | head || true)"
complain "a pipe into grep -q: it stops reading and pipefail fails the test; use seen of tests/lib/test.sh" \
    "$(grep -nE '[|] *grep -[a-zA-Z]*q' build.sh .ci/run tests/*.sh tests/*/*.sh examples/*.sh || true)"
for f in generator/*.c runtime/*.c; do
    [ "$(wc -l <"$f")" -le 1200 ] || complain "longer than 1200 lines" "$f"
done

# ---- format
if command -v clang-format >/dev/null 2>&1; then
    # Versions format differently in small things; the one of Debian 12 is the reference.
    case $(clang-format --version) in
    *" 14."*)
        complain "not formatted (./build.sh fmt)" \
            "$(files 'generator/*.[ch]' 'runtime/*.[ch]' 'kernels/cpu/*.[ch]' 'tests/*.[ch]' 'examples/*.c' | grep -v '^tests/golden/' |
                xargs -r clang-format --dry-run 2>&1 | grep -oE '^[^:]+:[0-9]+' | head -20 || true)"
        ;;
    esac
fi
if command -v shellcheck >/dev/null 2>&1; then
    complain "shellcheck" "$(shellcheck -S warning -s bash build.sh .ci/run tests/run.sh tests/*.test.sh tests/lib/*.sh tests/torch/*.sh examples/*.sh 2>&1 | head -30 || true)"
fi
[ $bad = 0 ]
