#!/usr/bin/env bash
# A run that is resumed at any of its 20 steps ends in the same bytes and the same log as the straight run.
# tier: quick
# limit: 900
. "$(dirname "$0")/lib.sh"
mini_build "$T/mini" -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
mini_data
cd "$T" || exit
run() { ./mini data.train=train data.valid=valid eval.every=4 --quiet "$@" >out.txt 2>err.txt || fail "exit $?: $* : $(cat err.txt)"; }

MG_THREADS=3 run out=straight save.every=1 save.keep=100
for k in $(seq 1 19); do
    mkdir -p part/ckpt
    cp -r "straight/ckpt/$(printf 'step-%07d' "$k")" part/ckpt
    cp straight/metrics.jsonl part # with lines of the steps to come, which must go
    MG_POISON=1 MG_THREADS=1 run out=part
    [ "$(cat part/ckpt/latest)" = step-0000020 ] || fail "resumed at $k: did not reach step 20"
    same straight/ckpt/step-0000020/model-00001.safetensors part/ckpt/step-0000020/model-00001.safetensors
    [ "$(metrics straight)" = "$(metrics part)" ] || fail "resumed at $k: another log: $(diff <(metrics straight) <(metrics part))"
    rm -rf part
done

# A signal saves: the first run stops with 75 or 130, the second ends like the straight one.
for sig in TERM:75 INT:130; do
    code=0
    ./mini data.train=train data.valid=valid train.steps=200000 out=part save.every=0 >out.txt 2>err.txt &
    pid=$!
    until [ -s part/metrics.jsonl ]; do sleep 0.05; done
    kill -"${sig%:*}" $pid
    wait $pid || code=$?
    [ "$code" = "${sig#*:}" ] || fail "SIG${sig%:*}: exit $code"
    step=$(sed 's/step-0*//' part/ckpt/latest)
    run out=part train.steps="$step" save.every=0
    has out.txt "nothing to do"
    rm -rf part
done

# Two at once in one folder: the second is told who holds it.
./mini data.train=train train.steps=200000 out=part >/dev/null 2>&1 &
pid=$!
until [ -s part/metrics.jsonl ]; do sleep 0.05; done
exits 8 ./mini data.train=train out=part
has stderr "pid $pid"
kill -9 $pid
wait $pid 2>/dev/null || true
run out=part # the lock went with its holder

# What must not pass.
exits 2 ./mini data.train=train train.lrr=1
has stderr "did you mean 'train.lr'?"
exits 2 ./mini data.train=train batch.micro=8
has stderr "Rebuild with: megagen mini.lua 'batch.micro=8'"
exits 5 ./mini data.train=absent
exits 10 ./mini data.train=train train.lr=1e30 train.clip=0
[ ! -e runs/mini-1/ckpt ] || fail "a run that is not finite left a checkpoint"
exits 1 ./mini overfit data.train=train train.lr=0
exits 0 ./mini overfit data.train=train train.steps=100
exits 0 ./mini sample ckpt=straight prompt=static
exits 0 ./mini eval ckpt=straight data.valid=valid

# Where a run goes on: auto in the newest run while it is unfinished, a run in place, a checkpoint in a new folder.
rm -rf runs
exits 0 ./mini data.train=train train.steps=3 save.every=1
exits 0 ./mini data.train=train train.steps=6 resume=auto
has stdout "resumed from runs/mini-1/ckpt/step-0000003: step 3"
exits 0 ./mini data.train=train train.steps=6 resume=auto
has stdout "run folder: runs/mini-2"
exits 0 ./mini data.train=train train.steps=7 resume=runs/mini-1/ckpt/step-0000006
has stdout "run folder: runs/mini-3"
exits 0 ./mini data.train=train train.steps=1 train.init=ckpt:runs/mini-1
has stdout "weights of runs/mini-1/ckpt/step-0000006: step 0"
exits 2 ./mini data.train=train out=runs/mini-1 resume=never
exits 0 ./mini data.train=train train.steps=2 out=dumped dump=grads@1,weights@2,marked@1
for f in grads-1 weights-2 marked-1; do [ -s "dumped/$f.safetensors" ] || fail "no dumped/$f.safetensors"; done
