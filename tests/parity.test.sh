# Small models against what PyTorch said of them: every gradient of step 1, the losses of 100 steps of AdamW, in f64 and f32.
# The references in tests/torch/ref are made by `tests/torch/make.sh`; a change of initial values or of the order of data makes
# them stale, a change of anything else must not.
# limit: 400
. tests/lib/test.sh
. tests/lib/parity.sh
compare_build
for case in $CASES; do
    ref=tests/torch/ref/$case
    [ -f "$ref.safetensors" ] || fail "no reference of $case"
    parity_run "$case" f64
    compare_grads "$case f64" "$T/$case.f64/run/grads-1.safetensors" "$ref.safetensors" 1e-9
    parity_losses "$T/$case.f64/loss" "$ref.loss" 1e-6
    parity_run "$case" f32
    compare_grads "$case f32" "$T/$case.f32/run/grads-1.safetensors" "$ref.safetensors" 1e-5
    parity_losses "$T/$case.f32/loss" "$ref.loss" 1e-4
done
