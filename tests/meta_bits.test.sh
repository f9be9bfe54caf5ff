# What must not change the numbers, on one rank: four steps of two micro batches, with dropout, of one small model. Gradients of
# steps 1 and 4, weights, losses and the checkpoint (weights, masters, moments) are compared byte by byte; only where the
# order of additions is another (micro batches, chunks, compilers) to 1e-12, in f64. The numbers in front are those of the list
# of numeric checks: 6 micro batches, 15 remat, 16 two runs, 17 threads, 22 compilers, 23 poison; fuse and chunk have none.
# Programs that are wrong on purpose show at the end that the comparisons see it.
# limit: 900
. tests/lib/test.sh
. tests/lib/parity.sh
FILES="grads-1.safetensors grads-4.safetensors weights-1.safetensors weights-4.safetensors loss model"

# make NAME KEY=VALUE...: the program $T/NAME.
make() {
    local name=$1
    shift
    "$MEGAGEN" tests/meta/meta.lua "data.train=$T/text" "$@" -o "$T/$name" >"$T/log" 2>&1 || fail "$name: $(tail -5 "$T/log")"
}

# train RUN PROGRAM WORD...: $T/RUN with its FILES. Words go to the trainer.
train() {
    local run=$T/$1 program=$T/$2
    shift 2
    "$program/trainer" "out=$run" resume=never log.every=1 dump=grads@1,weights@1,grads@4,weights@4 "$@" >"$T/log" 2>&1 ||
        fail "$run: $(tail -5 "$T/log")"
    sed -n 's/.*"loss": *\([^,]*\),.*"gnorm": *\([^,]*\),.*/\1 \2/p' "$run/metrics.jsonl" >"$run/loss"
    [ "$(wc -l <"$run/loss")" = 4 ] || fail "$run: $(wc -l <"$run/loss") losses, expected 4"
    cp "$run/ckpt/step-0000004/model-00001.safetensors" "$run/model"
}

# differ A B: says which files of two runs differ; false if none does.
differ() {
    local f any=1
    for f in $FILES; do
        cmp -s "$T/$1/$f" "$T/$2/$f" || { printf '%s ' "$f" && any=0; }
    done
    return $any
}

# bits CHECK A B: two runs are equal in every byte.
bits() {
    local which
    if which=$(differ "$2" "$3"); then
        fail "check $1: $2 and $3 differ in $which($(paste -d' ' "$T/$2/loss" "$T/$3/loss" | tr '\n' ';'))"
    fi
    printf '%-22s %s = %s\n' "$1" "$2" "$3"
}

# close CHECK A B: gradients of step 1, and losses and norms of all steps, agree to 1e-12.
close() {
    compare_grads "$1: $2 ~ $3" "$T/$2/grads-1.safetensors" "$T/$3/grads-1.safetensors" 1e-12
    for field in 1 2; do
        cut -d' ' -f$field "$T/$2/loss" >"$T/got" && cut -d' ' -f$field "$T/$3/loss" >"$T/want"
        parity_losses "$T/got" "$T/want" 1e-12
    done
}

# wrong SCRIPT: sets CC to a compiler that edits funcs.c by the sed script first. The cache knows a compiler by what it says of
# its version.
wrong() {
    export CC=$T/wrong-cc
    cat >"$CC" <<EOF
#!/bin/sh
[ "\$1" = --version ] && exec cat "\$0"
case " \$* " in
*" funcs.c "*)
    cp funcs.c right.c
    sed -i '$1' funcs.c
    if cmp -s funcs.c right.c; then echo "nothing to edit" && exit 1; fi
    ;;
esac
exec cc "\$@"
EOF
    chmod +x "$CC"
}

compare_build
seq 1 4000 >"$T/text.txt"
"$MEGAGEN" data prepare "$T/text.txt" -o "$T/text" >"$T/log" 2>&1 || fail "data prepare: $(tail -3 "$T/log")"

unfused="none full"
for t in f32 bf16; do
    make $t precision.compute=$t
    MG_THREADS=2 train $t.none $t
    MG_THREADS=2 train $t.again $t
    bits "16 two runs" $t.again $t.none
    for n in 1 3; do
        MG_THREADS=$n train $t.threads-$n $t
        grep -q " $n thread" "$T/log" || fail "not $n threads: $(head -1 "$T/log")"
        bits "17 threads" $t.threads-$n $t.none
    done
    # Rows enough that most kernels are cut in parts; of the small program only column sums and the update are.
    make $t.wide.c precision.compute=$t batch.micro=96 batch.global=192
    parts=$(grep -c 'mg_par(c, [2-9]' "$T/$t.wide.c/rows.c")
    [ "$parts" -ge 12 ] || fail "only $parts kernels of rows.c are cut in parts"
    for n in 1 2 3; do
        MG_THREADS=$n train $t.wide-$n $t.wide.c
        [ $n = 1 ] || bits "17 threads" $t.wide-$n $t.wide-1
    done
    MG_POISON=1 train $t.poison $t
    bits "23 poison" $t.poison $t.none

    for remat in selective full; do
        make $t.$remat.c precision.compute=$t remat=$remat
        ! cmp -s "$T/$t/funcs.c" "$T/$t.$remat.c/funcs.c" || fail "remat=$remat changes nothing in the program"
        train $t.$remat $t.$remat.c
        bits "15 remat" $t.$remat $t.none
        MG_POISON=1 MG_THREADS=1 train $t.$remat-poison $t.$remat.c
        bits "15, 17, 23" $t.$remat-poison $t.none
    done
    for remat in $unfused; do
        make $t.unfused-$remat.c precision.compute=$t fuse=false remat=$remat
        ! cmp -s "$T/$t/funcs.c" "$T/$t.unfused-$remat.c/funcs.c" || fail "fuse=false changes nothing in the program"
        MG_POISON=1 train $t.unfused-$remat $t.unfused-$remat.c
        bits "fuse, 15, 23" $t.unfused-$remat $t.none
    done

    unfused=full
done

# Dropout draws: else 15 would say little.
make dry.c dropout=0.0
train dry dry.c
differ dry f32.none >"$T/which" || fail "dropout changes nothing"

# f64: eight rows a step; 15 tokens a row, so that a chunk of 5 exists.
f64() { make "$1.c" precision.compute=f64 ctx=15 batch.global=8 "${@:2}" && train "$1" "$1.c"; }
f64 f64.2x4 batch.micro=2
for micro in 1 4 8; do
    f64 f64.${micro}x$((8 / micro)) batch.micro=$micro
    close "6 micro batches" f64.${micro}x$((8 / micro)) f64.2x4
done
for chunk in 5 30; do
    f64 f64.chunk-$chunk batch.micro=2 batch.chunk=$chunk
    close "6 chunks" f64.chunk-$chunk f64.2x4
done
! cmp -s "$T/f64.chunk-5.c/funcs.c" "$T/f64.2x4.c/funcs.c" || fail "batch.chunk=5 changes nothing in the program"

# The generated files by other compilers; the cache knows a compiler by its name. The default one is gcc or clang: take the other.
printf '#!/bin/sh\nexec cc "$@" -O0\n' >"$T/cc-O0"
chmod +x "$T/cc-O0"
CC=$T/cc-O0 f64 f64.O0 batch.micro=2
close "22 -O0" f64.O0 f64.2x4
if cc --version | seen clang; then other=gcc; else other=clang; fi
if command -v $other >/dev/null; then
    CC=$other f64 f64.$other batch.micro=2
    close "22 $other" f64.$other f64.2x4
    # Another object, or nothing was compared.
    ! cmp -s "$T/f64.$other.c/trainer" "$T/f64.2x4.c/trainer" || fail "$other makes the same program"
else
    echo "22: there is no $other here"
fi

# Wrong on purpose: dropout draws anew in the backward pass; a gradient is added to what was there, which without poison
# is zero in the first step.
wrong '/block_bwd_ln_2_dropout_add_rmsnorm(/,/;/s/k->layer/(k->layer + 7)/'
make wrong.remat.c remat=full
train wrong.remat wrong.remat.c
which=$(differ wrong.remat f32.none) || fail "another draw in the backward pass is not seen"
case $which in *grads-1*) ;; *) fail "it is seen in $which, expected the gradients of step 1" ;; esac
wrong '/mlp_down_dw(/,/;/s/c->scalar.micro > 0/1/'
make wrong.poison.c
train wrong.first wrong.poison.c
same "$T/wrong.first/grads-1.safetensors" "$T/f32.none/grads-1.safetensors"
if (MG_POISON=1 train wrong.poison wrong.poison.c) 2>"$T/stderr"; then fail "a read of what was never written is not seen"; fi
has "$T/stderr" "not a number"
echo "seen: another draw, a read of what was never written"
