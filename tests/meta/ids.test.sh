# 49, 50: what tokens may be. A row without targets leaves no trace of its tokens: gradients keep every bit. Ids 0 and V - 1 train; an id
# of V, or below 0, ends the run with file and offset before the step.
# limit: 60
. tests/lib/test.sh
. tests/lib/parity.sh
. tests/meta/lib.sh
model pad
run pad other rows=0,1 mask=1:0:13
run pad another rows=0,2 mask=1:0:13
same "$T/other.st" "$T/another.st"
same "$T/other.say" "$T/another.say"
run pad seen rows=0,1
unlike 49 other seen
run pad seen-2 rows=0,2
unlike 49 seen seen-2

printf 'a\0bcabcabcabcabc' >"$T/text.txt"
"$MEGAGEN" data prepare "$T/text.txt" -o "$T/text" >"$T/log" # bytes, then id 256: 17 tokens of two bytes
# train NAME V DATA: the trainer's exit code.
train() {
    "$MEGAGEN" tests/meta/edge.lua "V=$2" batch.global=2 train.steps=2 "data.train=$3" -o "$T/$1" >"$T/log" 2>&1 || fail "$1: $(tail -3 "$T/log")"
    "$T/$1/trainer" "out=$T/$1.run"
}
exits 0 train all 257 "$T/text"
exits 5 train below 256 "$T/text"
has "$T/stderr" "text.bin: offset 32: token 256 is not below the vocabulary of 256"
# As int16 (code 3 behind magic and version) the fifth token is -1.
cp "$T/text.idx" "$T/signed.idx" && cp "$T/text.bin" "$T/signed.bin"
printf '\003' | dd of="$T/signed.idx" bs=1 seek=17 conv=notrunc status=none
printf '\377\377' | dd of="$T/signed.bin" bs=1 seek=8 conv=notrunc status=none
exits 5 train signed 257 "$T/signed"
has "$T/stderr" "signed.bin: offset 8: token -1 is"
