# Gradients of whole models. In f64 against central differences of the model's own loss. In f32 the three remat modes and an
# arena that was filled with NaN must give the same bits.
# limit: 600
. tests/lib/test.sh
CC=${CC:-cc}
lib=build/release/libmg.a

# model SPEC NAME key=value...: $T/NAME with the program `check` in it
model() {
    local spec=$1 out=$T/$2
    shift 2
    "$MEGAGEN" "$spec" -o "$out" "$@" >"$out.log" 2>&1 || fail "$spec $*: $(tail -3 "$out.log")"
    (
        cd "$out" || exit
        # what is generated, as its own build.sh compiles it; the runtime comes from the archive
        sed -n 's/^compile \([a-z0-9_]*\) \1\.c *\(-ffp-contract=[a-z]*\).*/\1 \2/p' build.sh >parts
        while read -r f contract; do
            "$CC" -std=gnu11 -O1 -march=native "$contract" -Iruntime -Ikernels -Ikernels/cpu -c "$f.c" &
        done <parts
        wait
    )
    "$CC" -std=gnu11 -O1 -D_GNU_SOURCE -I "$out/runtime" tests/grad_check.c "$out"/*.o "$lib" -lm -lpthread -o "$out/check"
}

for m in gpt2 llama hetero; do
    model "tests/torch/$m.lua" "$m" precision.compute=f64
    "$T/$m/check" -n 6 >"$T/$m.out" || fail "$m: $(cat "$T/$m.out")"
done

for mode in none selective full; do
    model tests/torch/llama.lua "$mode" "remat=$mode"
    "$T/$mode/check" -d "$T/$mode.bin" >/dev/null
    "$T/$mode/check" -p -d "$T/$mode.nan" >/dev/null
    same "$T/none.bin" "$T/$mode.bin"
    same "$T/$mode.bin" "$T/$mode.nan"
done
