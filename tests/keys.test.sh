# What a key allows is checked by the tool and, from the same row of the schema, by the trainer: exit 2 with the key, the value and
# what is allowed. The first line of a build says the target and why it was chosen.
# tier: quick
. tests/lib/test.sh

"$MEGAGEN" tests/meta/meta.lua cpu=generic -o "$T/meta" >"$T/first" || fail "build: exit $?"
[ "$(head -1 "$T/first")" = "target    cpu generic: asked for by cpu (command line)" ] || fail "first line: $(head -1 "$T/first")"
"$MEGAGEN" plan tests/meta/meta.lua >"$T/first"
grep -q "^target    cpu [a-z0-9]*: the highest level of this machine" "$T/first" || fail "first line: $(head -1 "$T/first")"

# refuses KEY=VALUE TEXT: the trainer says it, and so does the tool.
refuses() {
    exits 2 "$T/meta/trainer" "$1" --dry-run
    has "$T/stderr" "$2"
    exits 2 "$MEGAGEN" check tests/meta/meta.lua "$1"
    has "$T/stderr" "${1%%=*}"
}
refuses train.warmup=-1 "train.warmup = -1 is below 0; allowed is 0.."
refuses train.floor=1.5 "train.floor = 1.5 is above 1; allowed is 0..1"
refuses save.keep=0 "save.keep = 0 is below 1; allowed is 1.."
refuses log.every=0 "log.every = 0 is below 1"
refuses train.steps=-3 "train.steps = -3 is below 0"
refuses train.schedule=cosin "train.schedule = 'cosin' is not one of constant|linear|cosine|inverse_sqrt|wsd; did you mean 'cosine'?"
refuses data.tokenizer=words "data.tokenizer = 'words' is not one of bytes"
refuses train.lr=fast "train.lr"
refuses data.seed=9007199254740993000 "data.seed"
refuses save.shard=4Ki "save.shard"
refuses save.interval=5x "save.interval"

# Sizes and times that the trainer reads are read by the tool.
for good in save.shard=4kB save.shard=1.5GiB save.interval=1h30m save.interval=10ms data.seed=9007199254740992; do
    "$MEGAGEN" check tests/meta/meta.lua "$good" >"$T/check" || fail "$good is refused"
done

# A row as long as a row may be is planned, not taken for a spec without an end.
"$MEGAGEN" plan specs/tiny.lua ctx=16777216 >"$T/long" 2>&1 || fail "ctx=16777216: exit $?"

# At the edge, and what has no edge.
for good in train.warmup=0 train.floor=1 train.floor=0 save.keep=1 train.weight_decay_end=-1 train.schedule=wsd; do
    "$T/meta/trainer" "$good" --print-config >"$T/config" || fail "$good is refused"
    grep -q "^${good%%=*} .*command line" "$T/config" || fail "$good is not in force"
done
# Every key of the schema with a least value refuses what lies below it.
"$T/meta/trainer" --print-config | grep -v "compiled in" | awk '{ print $1 }' >"$T/keys"
n=0
while read -r key; do
    row=$(grep -A2 "^    {\"$key\"" "$T/meta/model.c" | tr '\n' ' ' || true)
    case $row in
    *'"0.."}'* | *'"1.."}'* | *'"0..'* | *'"1..'*)
        exits 2 "$T/meta/trainer" "$key=-2" --print-config
        has "$T/stderr" "$key = -2 is below"
        n=$((n + 1))
        ;;
    esac
done <"$T/keys"
[ "$n" -ge 20 ] || fail "only $n keys have a least value"
