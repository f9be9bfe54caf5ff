# Break ten op blocks of generator/rules in a copy of the tree, one at a time: tests/unit_ops.c must fail each time and name
# the op.
# limit: 200
. tests/lib/test.sh
./build.sh units unit_ops >"$T/log" 2>&1
[ -x build/asan/unit_ops ] || fail "unit_ops does not build: $(cat build/asan/unit_ops.log)"

mkdir -p "$T/home"
cp -r generator kernels specs templates runtime "$T/home/"

# mutate OP FILE 's/right/wrong/': only lines of the block of OP change
mutate() {
    local op=$1 file=generator/rules/$2 edit=$3
    sed "/^op \"$op\"/,/^op /{ $edit; }" "$file" >"$T/home/$file"
    ! cmp -s "$file" "$T/home/$file" || fail "matches nothing: $op $edit"
    if MEGAGEN_HOME=$T/home ASAN_OPTIONS=detect_leaks=0 build/asan/unit_ops "$op" >"$T/out" 2>&1; then
        fail "not noticed: $op $edit"
    fi
    grep -q "^op $op: " "$T/out" || fail "$op is not named: $edit: $(tail -5 "$T/out")"
    echo "noticed: $(grep -m1 "^op $op: " "$T/out") ($edit)"
    cp "$file" "$T/home/$file"
}

mutate sub core.lua 's/body = "z = x - y"/body = "z = y - x"/'
mutate softcap core.lua 's/cap \* tanh(x \/ cap)/cap * tanh(x)/'
mutate row_mean core.lua 's/mean(x, d)/sum(x, d)/'
mutate layernorm nn.lua 's/y = c \* r \* w + b/y = c * r * w/'
mutate rmsnorm nn.lua 's/mean(x \* x, d) + eps/mean(x * x, d)/'
mutate cross_entropy nn.lua 's/zloss \* l \* l/zloss * l/'
mutate gelu_tanh nn.lua 's/0\.044715 \* x/0.04 * x/'
mutate rope nn.lua 's/y2 = x2 \* cs + x1 \* sn/y2 = x2 * cs - x1 * sn/'
mutate dropout nn.lua 's/(1 \/ (1 - p))/(1 - p)/'
mutate embed nn.lua 's/whole = { "v" }, *//'
mutate attention nn.lua 's/whole = { "s", "e" }/whole = { "s" }/'
mutate adamw optim.lua 's/c2 = -2\.0/c2 = -1.9/'
