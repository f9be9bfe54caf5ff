"""The decoder of specs/lib in PyTorch: the same weights by the same names, in the same layouts.

What a model has is read off its weights: a bias where one is named, a gated MLP where there is gate_up, layer norm where a norm
has a bias, RMS norm else, learned positions where there is embed.pos, a head of its own where there is head.w. What cannot be read
off (rotary base, activation, windows, caps) stands in CASES.

Shapes: b batch, s sequence, d model, g key-value heads, r query heads of each, e head size, f hidden, v vocabulary.
"""
import math

import torch
import torch.nn.functional as F

CASES = {
    "gpt2": dict(act="gelu_tanh"),
    "llama": dict(theta=500000.0, scaling=dict(factor=8.0, low=1.0, high=4.0, original=32)),
    "qwen": dict(theta=1000000.0, eps=1e-6),
    "tiny": dict(theta=10000.0),
    "hetero": dict(theta=10000.0, act="relu2", window={1: 5}, softcap={2: 3.0}, logits_cap=15.0),
    "user": dict(theta=10000.0, user=True),
}
STEPS = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8, decay=0.1, clip=1.0)


def rms(x, w, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w


def norm(x, w, name, eps):
    if name + ".b" in w:
        return F.layer_norm(x, x.shape[-1:], w[name + ".w"], w[name + ".b"], eps)
    return rms(x, w[name + ".w"], eps)


def rope(x, theta, scaling):
    """x[b s ... e] with its two halves rotated; Llama 3's scaling of the long waves."""
    s, half = x.shape[1], x.shape[-1] // 2
    freq = theta ** (-2.0 * torch.arange(half, dtype=torch.float64) / (2 * half))
    if scaling:
        wave = 2 * math.pi / freq
        keep = ((scaling["original"] / wave - scaling["low"]) / (scaling["high"] - scaling["low"])).clamp(0, 1)
        freq = (1 - keep) * freq / scaling["factor"] + keep * freq
    angle = torch.arange(s, dtype=torch.float64)[:, None] * freq
    shape = (1, s) + (1,) * (x.dim() - 3) + (half,)
    cos, sin = angle.cos().to(x.dtype).view(shape), angle.sin().to(x.dtype).view(shape)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attention(x, w, p, case, layer):
    qkv = torch.einsum("bsd,dgqe->bsgqe", x, w[p + "wqkv"])
    if p + "bqkv" in w:
        qkv = qkv + w[p + "bqkv"]
    q, k, v = qkv[..., :-2, :], qkv[..., -2, :], qkv[..., -1, :]
    if p + "q_norm.w" in w:
        q, k = rms(q, w[p + "q_norm.w"], 1e-5), rms(k, w[p + "k_norm.w"], 1e-5)
    if case.get("theta") and "embed.pos" not in w:
        q, k = (rope(t, case["theta"], case.get("scaling")) for t in (q, k))
    score = torch.einsum("bsgre,btge->bgrst", q, k) * q.shape[-1] ** -0.5
    cap = case.get("softcap", {}).get(layer, 0)
    if cap:
        score = cap * torch.tanh(score / cap)
    n = x.shape[1]
    far = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    window = case.get("window", {}).get(layer, 0) or n
    score = score.masked_fill((far < 0) | (far >= window), float("-inf"))
    y = torch.einsum("bgrst,btge->bsgre", score.softmax(-1), v)
    y = torch.einsum("bsgre,gred->bsd", y, w[p + "wo"])
    return y + w[p + "bo"] if p + "bo" in w else y


ACTS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu2": lambda x: F.relu(x) ** 2,
    "silu": F.silu,
}


def mlp(x, w, p, case):
    if p + "gate_up" in w:
        gate, up = torch.einsum("bsd,dpf->pbsf", x, w[p + "gate_up"])
        h = F.silu(gate) * up
    else:
        h = x @ w[p + "up"]
        h = ACTS[case.get("act", "gelu")](h + w[p + "up_b"] if p + "up_b" in w else h)
    y = h @ w[p + "down"]
    return y + w[p + "down_b"] if p + "down_b" in w else y


def user_layer(x, w, p):
    """The layer that tests/torch/user.lua writes itself: a gated shift by tanh, with a scale of its own."""
    h = torch.tanh(x @ w[p + "mix.w"]) * w[p + "scale"]
    return h @ w[p + "back.w"]


def logits(w, tokens, case):
    eps = case.get("eps", 1e-5)
    x = w["embed.w"][tokens]
    if "embed.pos" in w:
        x = x + w["embed.pos"][: tokens.shape[1]]
    layer = 0
    while f"layers.{layer}.ln_1.w" in w:
        p = f"layers.{layer}."
        x = x + attention(norm(x, w, p + "ln_1", eps), w, p + "attn.", case, layer)
        y = norm(x, w, p + "ln_2", eps)
        x = x + (user_layer(y, w, p + "mix.") if p + "mix.scale" in w else mlp(y, w, p + "mlp.", case))
        layer += 1
    y = norm(x, w, "ln_f", eps) @ w.get("head.w", w["embed.w"]).T
    cap = case.get("logits_cap", 0)
    return cap * torch.tanh(y / cap) if cap else y


def loss(w, tokens, targets, case):
    """Mean over the targets that are not -1, in nats."""
    y = logits(w, tokens, case)
    return F.cross_entropy(y.flatten(0, 1), targets.flatten(), ignore_index=-1)
