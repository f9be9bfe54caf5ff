"""reference.py CASE DUMPS OUT: what PyTorch says of a run of the trainer.

DUMPS holds what the trainer wrote with dump=weights@1,grads@1,marked@1,marked@2,...: its first weights, its first gradients (only
their names are used) and the rows of every step. OUT.safetensors gets the loss and every gradient at step 1, OUT.loss the loss of
each step of AdamW, one a line. All of it is computed in f64.
"""
import os
import sys

import numpy as np
import torch

import model
import tensors


def weight_of(name):
    """The weight a gradient belongs to."""
    return name[: -len(".grad")] if name.endswith(".grad") else name.replace("grad/", "")


BIASES = {"b", "bqkv", "bo", "up_b", "down_b", "gate_up_b"}


def decays(name, p):
    """Vectors do not, nor do biases of more dims."""
    return p.dim() > 1 and name.split(".")[-1] not in BIASES


def dump(folder, what, step):
    path = os.path.join(folder, f"{what}-{step}.safetensors")
    return tensors.load(path) if os.path.exists(path) else None


def clip_(params, most):
    size = sum(float((p.grad**2).sum()) for p in params) ** 0.5
    if most and size + 1e-6 > most:
        for p in params:
            p.grad *= most / (size + 1e-6)


def main(case_name, folder, out):
    torch.set_num_threads(2)
    case, o = model.CASES[case_name], model.STEPS
    first = dump(folder, "weights", 1)
    w = {k: torch.tensor(np.array(v), dtype=torch.float64, requires_grad=True) for k, v in first.items()}
    groups = [dict(params=[p for k, p in w.items() if decays(k, p) == yes], weight_decay=o["decay"] * yes) for yes in (True, False)]
    adam = torch.optim.AdamW(groups, lr=o["lr"], betas=o["betas"], eps=o["eps"])
    losses, step = [], 1
    while (rows := dump(folder, "marked", step)) is not None:
        tokens, targets = (torch.tensor(np.array(rows[k]), dtype=torch.int64) for k in ("tokens", "targets"))
        adam.zero_grad()
        value = model.loss(w, tokens, targets, case)
        value.backward()
        losses.append(value.item())
        if step == 1:
            grads = {name: w[weight_of(name)].grad.numpy().copy() for name in dump(folder, "grads", 1)}
            tensors.save(out + ".safetensors", grads)
        clip_(list(w.values()), o["clip"])
        adam.step()
        step += 1
    with open(out + ".loss", "w", encoding="ascii") as f:
        f.writelines(f"{v:.17g}\n" for v in losses)
    print(f"{case_name}: {len(first)} weights, {len(losses)} steps, loss {losses[0]:.6f} to {losses[-1]:.6f}")


main(*sys.argv[1:])
