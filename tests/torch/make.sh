#!/usr/bin/env bash
# make.sh: writes tests/torch/ref anew. Needs PyTorch; look at the difference before you commit it.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 3
export MEGAGEN=$PWD/megagen PYTHONDONTWRITEBYTECODE=1
. tests/lib/test.sh
. tests/lib/parity.sh
mkdir -p tests/torch/ref
[ $# -gt 0 ] || set -- $CASES
for case in "$@"; do
    parity_run "$case" f64
    "${PYTHON:-/usr/bin/python3}" tests/torch/reference.py "$case" "$T/$case.f64/run" "tests/torch/ref/$case"
done
