# The first command of the README: a model that beats every n-gram model on what was held out, and writes words.
# limit: 1200
. tests/lib/test.sh
export DEMO_DIR=$T/demo
bash examples/demo.sh >"$T/out" 2>&1 || fail "the demo failed: $(tail -8 "$T/out")"
sed -n '/^== evaluate/,$p' "$T/out"
