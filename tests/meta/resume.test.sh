# Check 18: a generated trainer resumed at any of its 20 steps ends in the same bytes and with the same log as the straight run. The
# model has dropout; learning rate and weight decay change at every step, two data sets are mixed and pass their end, and two micro
# batches make a step. bf16 has masters, too. The resumed run works with other threads, on memory filled with NaN.
# limit: 300
. tests/lib/test.sh
# A few rows: of the 160 rows of a run each comes many times.
seq 1 40 >"$T/a.txt" && seq 500 517 >"$T/b.txt"
for d in a b; do "$MEGAGEN" data prepare "$T/$d.txt" -o "$T/$d" >/dev/null; done
log() { sed 's/,"tokens_per_s.*//' "$1/metrics.jsonl"; }

# train TYPE RUN WORD...
train() {
    local program=$T/$1.c/trainer run=$T/$2
    shift 2
    "$program" "out=$run" log.every=1 eval.every=4 train.warmup=6 train.decay=17 train.steps=20 \
        train.weight_decay=0.02 train.weight_decay_end=0.2 train.weight_decay_schedule=cosine "$@" >"$T/log" 2>&1 ||
        fail "$run: exit $?: $(tail -5 "$T/log")"
}
for type in f32 bf16; do
    "$MEGAGEN" tests/meta/factor.lua train.schedule=cosine train.steps=20 "data.train=$T/a:0.3,$T/b:0.7" "data.valid=$T/a" \
        precision.compute=$type -o "$T/$type.c" >"$T/log" 2>&1 || fail "$type: $(tail -5 "$T/log")"
    MG_THREADS=2 train $type $type save.every=1 save.keep=100
    last=ckpt/step-0000020
    lines=$(log "$T/$type" | wc -l)
    [ "$lines" = 25 ] || fail "$lines lines in the log, expected 20 steps and 5 evaluations"
    rates=$(log "$T/$type" | sed -n 's/.*"lr":\([^,]*\),"wd":\([^,]*\).*/\1 \2/p' | sort -u | wc -l)
    [ "$rates" -ge 18 ] || fail "only $rates different rates"
    for k in $(seq 1 19); do
        part=$T/part
        mkdir -p "$part/ckpt"
        cp -r "$T/$type/ckpt/$(printf 'step-%07d' "$k")" "$part/ckpt"
        cp "$T/$type/metrics.jsonl" "$part" # with lines of the steps to come, which must go
        MG_POISON=1 MG_THREADS=1 train $type part save.every=0
        grep -q "step $k\$" "$T/log" || fail "not resumed at $k: $(head -5 "$T/log")"
        for f in "$T/$type/$last"/*.safetensors; do same "$f" "$part/$last/${f##*/}"; done
        [ "$(log "$T/$type")" = "$(log "$part")" ] || fail "$type, resumed at $k: $(diff <(log "$T/$type") <(log "$part") | head -4)"
        rm -rf "$part"
    done
    # What is loaded to be evaluated is what was trained.
    want=$(sed -n 's/.*"eval_loss":\([^,]*\),.*/\1/p' "$T/$type/metrics.jsonl" | tail -1)
    got=$("$T/$type.c/trainer" eval "ckpt=$T/$type" 2>&1 | sed -n 's/.*valid loss \([0-9.]*\) .*/\1/p')
    [ -n "$got" ] || fail "eval of a checkpoint says no loss"
    near "$got" "$want" 1e-6
    echo "18 $type: resumed at 1 to 19, the bytes and the log of the straight run"
done

# What a checkpoint does not carry would show: another order of the data does.
mkdir -p "$T/part/ckpt" && cp -r "$T/bf16/ckpt/step-0000019" "$T/part/ckpt"
train bf16 part data.seed=2
! cmp -s "$T/bf16/$last/model-00001.safetensors" "$T/part/$last/model-00001.safetensors" || fail "another last row goes unseen"
