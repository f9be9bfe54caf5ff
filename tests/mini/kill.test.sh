#!/usr/bin/env bash
# kill -9 at 300 points of a run that saves each step, and I/O errors at 100: what is left always resumes, and ends in
# the bytes and the log of a run that nothing happened to.
# limit: 900
. "$(dirname "$0")/lib.sh"
mini_build "$T/mini" -O2
$CC $STD -shared -fPIC -O1 tests/mini/fault.c -o "$T/fault.so" -ldl
mini_data
cd "$T" || exit
args="data.train=train data.valid=valid eval.every=2 train.steps=10 save.every=1 save.keep=2 save.shard=50kB --quiet"
broken() { (LD_PRELOAD=$T/fault.so ./mini $args out="$1" >/dev/null; exit $?) 2>err.txt; }

FAULT_COUNT=$T/count broken straight || fail "the straight run: $(cat err.txt)"
total=$(cat count)
[ "$total" -ge 150 ] || fail "only $total file operations were seen"

finish() { # what was done
    ./mini $args out=part >/dev/null 2>again.txt || fail "$1: does not resume: $(cat again.txt)"
    for f in straight/ckpt/step-0000010/*; do same "$f" "part/ckpt/step-0000010/${f##*/}"; done
    [ "$(ls -A part/ckpt)" = "$(ls -A straight/ckpt)" ] || fail "$1: left behind: $(ls -A part/ckpt | tr '\n' ' ')"
    [ "$(metrics straight)" = "$(metrics part)" ] || fail "$1: another log"
    rm -rf part
}

kills=0
for i in $(seq 0 299); do
    at=$((1 + i * total / 300))
    [ "$at" != "${before:-}" ] || continue
    before=$at
    code=0
    FAULT_AT=$at FAULT_HOW=kill broken part || code=$?
    [ "$code" = 137 ] || fail "kill at $at of $total: exit $code"
    finish "killed at $at of $total"
    kills=$((kills + 1))
done

errors=0
for i in $(seq 0 99); do
    at=$((1 + i * total / 100)) how=EIO stay=
    [ $((i % 2)) = 0 ] || how=ENOSPC
    [ $((i % 4)) -lt 2 ] || stay=1
    code=0
    FAULT_AT=$at FAULT_HOW=$how FAULT_STAY=$stay broken part || code=$?
    case $code in 0 | 7) ;; *) fail "$how at $at: exit $code: $(cat err.txt)" ;; esac
    finish "$how at $at"
    errors=$((errors + 1))
done
echo "$kills kills, $errors errors at $total operations"
