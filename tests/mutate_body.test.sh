#!/usr/bin/env bash
# Break ten rules of generator/body.c, one at a time: tests/unit_body.c must fail each time, and pass unbroken.
# tier: full
set -euo pipefail
cd "$(dirname "$0")/.."
T=${T:-$(mktemp -d)}
eval "$(./build.sh flags)"
rules=(
    's/"dy\/z", "-dy\*y\/z"/"dy\/z", "dy*y\/z"/'
    's/"dy\*z", "dy\*x"/"dy*z", "dy*z"/'
    's/{"-0.5\*dy\*y\*y\*y"}/{"-0.5*dy*y*y"}/'
    's/{"dy\*(1 - y\*y)"}/{"dy*(1 - y)"}/'
    's/{"dy\*exp(x - y)"}/{"dy*exp(x)"}/'
    's/{"dy\*cos(x)"}/{"-dy*cos(x)"}/'
    's/"where(x < z, dy, 0)", "where(x < z, 0, dy)"/"dy", "where(x < z, 0, dy)"/'
    's/1.12837916709551257/1.12837916/'
    's/{"0.5\*dy\/y"}/{"dy\/y"}/'
    's/NULL, "where(x, dy, 0)", "where(x, 0, dy)"/NULL, "dy", "where(x, 0, dy)"/'
)
printf '#include "megagen.h"\nf64 lua_flops(Graph *g, u32 n) { (void)g; return (f64)n; }\n' >"$T/stub.c"
for f in tests/unit_body.c "$T/stub.c" generator/{util,graph,sig,body_text}.c; do
    $CC $STD $CFLAGS_LIBS -c "$f" -o "$T/$(basename "$f" .c).o"
done
try() { # body.c
    $CC $STD $CFLAGS_LIBS -c "$1" -o "$T/body.o" && $CC "$T"/*.o -lm -o "$T/unit" && "$T/unit" >"$T/log" 2>/dev/null
}
try generator/body.c || { echo "fails unbroken"; cat "$T/log"; exit 1; }
for r in "${rules[@]}"; do
    sed "$r" generator/body.c >"$T/broken.c"
    ! cmp -s generator/body.c "$T/broken.c" || { echo "matches nothing: $r"; exit 1; }
    ! try "$T/broken.c" || { echo "not noticed: $r"; exit 1; }
    echo "noticed by $(sed -n 's/ *FAILED//p' "$T/log" | tr '\n' ' '): $r"
done
