# Small models against PyTorch itself: as tests/parity.test.sh, with references made now, from this machine's first weights.
# tier: peers
# limit: 600
. tests/lib/test.sh
. tests/lib/parity.sh
PYTHON=${PYTHON:-/usr/bin/python3}
"$PYTHON" -c 'import torch' 2>/dev/null || skip "PyTorch is not installed for $PYTHON (apt-get install python3-torch)"
"$PYTHON" - <<'END'
import time, torch
a = torch.randn(1024, 1024)
a @ a
t = time.time()
for _ in range(4):
    a @ a
print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {4 * 2 * 1024**3 / (time.time() - t) / 1e9:.0f} GFLOP/s in its matmul")
END
compare_build
export PYTHONDONTWRITEBYTECODE=1
for case in $CASES; do
    for dtype in f64 f32; do
        parity_run "$case" $dtype
        "$PYTHON" tests/torch/reference.py "$case" "$T/$case.$dtype/run" "$T/$case.$dtype.ref"
    done
    compare_grads "$case f64" "$T/$case.f64/run/grads-1.safetensors" "$T/$case.f64.ref.safetensors" 1e-9
    compare_grads "$case f32" "$T/$case.f32/run/grads-1.safetensors" "$T/$case.f32.ref.safetensors" 1e-5
    parity_losses "$T/$case.f64/loss" "$T/$case.f64.ref.loss" 1e-6
    parity_losses "$T/$case.f32/loss" "$T/$case.f32.ref.loss" 1e-4
done
