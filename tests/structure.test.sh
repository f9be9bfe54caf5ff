# What the passes make of four small models, counted: kernels of a layer in both directions, three products a chunk of the
# head, logits overwritten by their gradient, no copy; and the text of it in C.
# tier: quick
# limit: 60
. tests/lib/test.sh
. tests/lib/kinds.sh

# expect SPEC FUNC KINDS: in the program after tune.
expect() {
    local got
    got=$(kinds "$T/$1.mg" "$2")
    [ "$got" = "$3" ] || fail "$1, $2: expected $3, got $got"
}
# of_func FILE FUNC: its statements; body_of FILE FUNC: its C text.
of_func() { awk -v f="$2" '$1 == "func" && $2 == f { on = 1 } on { print } on && $1 == "end" { exit }' "$1"; }
body_of() { awk -v f="$2" 'index($0, "void " f "(") == 1 { on = 1 } on { print } on && $0 == "}" { exit }' "$1"; }

for spec in tiny gpt2 llama qwen; do
    "$MEGAGEN" show tests/golden/$spec.lua -p tune >"$T/$spec.mg" || fail "$spec"
    "$MEGAGEN" show tests/golden/$spec.lua fuse=false -p tune >"$T/$spec.off.mg" || fail "$spec without fusion"
    "$MEGAGEN" show tests/golden/$spec.lua -p emit -o "$T/$spec" >/dev/null || fail "$spec: emit"

    # norm; sum and norm. Backward: each norm with the sum of the residual's gradient and the column sums.
    case $spec in
    gpt2) expect $spec block "row 2, map 3" && expect $spec block.bwd "row 2, map 4" ;;  # qkv bias, gelu, last add; dropout
    qwen) expect $spec block "row 2, map 4" && expect $spec block.bwd "row 2, map 4" ;;  # bias, rope, swiglu, last add
    *) expect $spec block "row 2, map 3" && expect $spec block.bwd "row 2, map 3" ;;     # rope, swiglu, last add
    esac
    expect $spec head.loss.loop "row 1, map 2" # loss and gradient; the scale, the total
    expect $spec update "row 0, map 3"         # sum of squares, clip, the optimizer
    [ "$(grep -c '= copy ' "$T/$spec.mg")" = 0 ] || fail "$spec: a copy"
    [ "$(of_func "$T/$spec.mg" head.loss.loop | grep -c '= matmul ')" = 3 ] || fail "$spec: products a chunk"
    [ "$(grep -c 'func .* loop' "$T/$spec.mg")" = 2 ] || fail "$spec: a loop of the loss and one of the evaluation"
    of_func "$T/$spec.mg" block | grep '= fused' | tail -1 | seen 'resid "mlp_add" = .*path=mlp_add' ||
        fail "$spec: the layer does not end with its residual sum"

    # Without fusion the same nodes stand alone: the only thing that a kernel computes beside its op is nothing.
    on=$(grep -c '= fused ' "$T/$spec.mg") off=$(grep -c '= fused ' "$T/$spec.off.mg")
    [ "$off" -gt "$on" ] || fail "$spec: $off kernels without fusion, $on with"
    ! grep -q 'ops="add_.*norm"' "$T/$spec.off.mg" || fail "$spec: fused although fuse=false"

    # In C: three products in the loop of the head, no fourth; dlogits lie where the logits lay.
    body_of "$T/$spec/funcs.c" head_loss >"$T/head.c"
    [ "$(grep -c 'head_\(mm\|dx\|dw\)(' "$T/head.c")" = 3 ] || fail "$spec: $(grep -c 'head_' "$T/head.c") calls in the head"
    logits=$(sed -n 's/.*\*logits *= \(.*\);.*/\1/p' "$T/head.c") dlogits=$(sed -n 's/.*\*dlogits *= \(.*\);.*/\1/p' "$T/head.c")
    [ -n "$logits" ] && [ "$logits" = "$dlogits" ] || fail "$spec: logits at $logits, their gradient at $dlogits"
    body_of "$T/$spec/funcs.c" block_fwd | grep -v '^ \{9,\}' | tail -2 | sed -n 1p | seen 'mlp_add' ||
        fail "$spec: the last call of the layer is another"

    # Lines end before column 100, no name ends in an underscore or repeats one.
    for f in model.h model.c funcs.c rows.c kernels.c products.c main.c; do
        awk 'length > 100 { exit 1 }' "$T/$spec/$f" || fail "$spec/$f: a line longer than 100: $(awk 'length > 100' "$T/$spec/$f" | head -1)"
        ! grep -nE '[^A-Za-z0-9_][a-z][a-z0-9]*(_[a-z0-9]+)*__[a-z0-9]' "$T/$spec/$f" || fail "$spec/$f: an odd name"
    done
done
echo "4 models"
