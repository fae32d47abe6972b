"""Trains the model in the box: a small Llama on the conversations that
`go run ./internal/tiny/train data` writes. See README.md for the recipe.

Three things make the minutes count. The loss is on answers only, for what
people and tools say cannot be foretold. Matrices inside of layers are trained with
Muon, whose steps have the same size in every direction, and the rest with AdamW.
And every batch holds conversations of like length, each from position 0, so that
little is padded and nothing sees another conversation.
"""

import argparse
import json
import math
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

TASKS = ["small talk", "say", "sum", "sum without thought", "look-up", "form", "call", "parallel calls", "chained call", "decline", "result", "failure"]


# The learning rates, as shares of the highest, by the part of the course that is
# over: straight lines between these points.
RATES = [(0, 0), (0.015, 1), (0.16, 1), (0.26, 0.4), (0.5, 0.25), (1, 0)]


class Config:
    vocab, width, layers, heads, kv_heads, head, hidden, context = 2048, 128, 5, 4, 2, 32, 224, 2048
    rope_base, eps = 100000.0, 1e-5


def rms(x, weight, eps):
    return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)) * weight


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        kv = c.kv_heads * c.head
        self.norm1 = nn.Parameter(torch.ones(c.width))
        self.norm2 = nn.Parameter(torch.ones(c.width))
        self.qkv = nn.Parameter(torch.randn(c.width + 2 * kv, c.width) / math.sqrt(c.width))
        self.o = nn.Parameter(torch.zeros(c.width, c.width))
        self.gate_up = nn.Parameter(torch.randn(2 * c.hidden, c.width) / math.sqrt(c.width))
        self.down = nn.Parameter(torch.zeros(c.width, c.hidden))

    def forward(self, x, cos, sin, want=None):
        """With want, the result is that of these positions alone."""
        c = self.c
        b, t, _ = x.shape
        qkv = F.linear(rms(x, self.norm1, c.eps), self.qkv).view(b, t, c.heads + 2 * c.kv_heads, c.head)
        qk, v = qkv.split([c.heads + c.kv_heads, c.kv_heads], 2)
        half = c.head // 2
        one, two = qk[..., :half], qk[..., half:]
        qk = torch.cat([one * cos - two * sin, two * cos + one * sin], -1)
        q, k = qk.split([c.heads, c.kv_heads], 2)
        group = c.heads // c.kv_heads
        k, v = (y.unsqueeze(3).expand(b, t, c.kv_heads, group, c.head).reshape(b, t, c.heads, c.head) for y in (k, v))
        y = F.scaled_dot_product_attention(*(y.transpose(1, 2) for y in (q, k, v)), is_causal=True)
        y = y.transpose(1, 2).reshape(b, t, c.heads * c.head)
        if want is not None:
            x, y = x[want], y[want]
        x = x + F.linear(y, self.o)
        gate, up = F.linear(rms(x, self.norm2, c.eps), self.gate_up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.down)


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed = nn.Parameter(torch.randn(c.vocab, c.width) * 0.05)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = nn.Parameter(torch.ones(c.width))
        angle = torch.outer(torch.arange(c.context).float(), c.rope_base ** (-torch.arange(0, c.head, 2).float() / c.head))
        self.register_buffer("cos", angle.cos()[:, None, :], persistent=False)
        self.register_buffer("sin", angle.sin()[:, None, :], persistent=False)

    def forward(self, ids, want):
        """The logits behind each position that is wanted, in a row."""
        x = F.embedding(ids, self.embed)
        t = ids.shape[1]
        for layer in self.layers[:-1]:
            x = layer(x, self.cos[:t], self.sin[:t])
        x = self.layers[-1](x, self.cos[:t], self.sin[:t], want)
        return F.linear(rms(x, self.norm, self.c.eps), self.embed)

    def tensors(self):
        """The weights under the names of Hugging Face."""
        c, out = self.c, {"model.embed_tokens.weight": self.embed, "model.norm.weight": self.norm}
        kv = c.kv_heads * c.head
        for i, l in enumerate(self.layers):
            p = f"model.layers.{i}."
            q, k, v = l.qkv.split([c.width, kv, kv])
            gate, up = l.gate_up.chunk(2)
            out |= {
                p + "input_layernorm.weight": l.norm1, p + "post_attention_layernorm.weight": l.norm2,
                p + "self_attn.q_proj.weight": q, p + "self_attn.k_proj.weight": k, p + "self_attn.v_proj.weight": v, p + "self_attn.o_proj.weight": l.o,
                p + "mlp.gate_proj.weight": gate, p + "mlp.up_proj.weight": up, p + "mlp.down_proj.weight": l.down,
            }
        return out


@torch.no_grad()
def wire(model):
    """Starts the model with the two heads in a row that copying takes, which it
    would else have to stumble upon: one writes down, at each token, which token
    stands before it; one looks for earlier places at which the token that is now
    at hand was written down, and says what stands there. Training is free to
    change them, and does.

    The residual stream begins with a constant, then what a token is, then a place
    for what the token before it was.
    """
    c = model.c
    first, second = model.layers[0], model.layers[1]
    who, channel = slice(1, c.width - c.head), slice(c.width - c.head, c.width)
    size = c.width - c.head - 1
    model.embed.normal_(std=0.08)
    model.embed[:, channel] *= 0.1
    model.embed[:, 0] = 0.5
    # q and k of a head see the constant alone: their angle picks the distance.
    half, kv = c.head // 2, c.kv_heads * c.head
    q = first.qkv[: c.width].view(c.heads, c.head, c.width)
    k = first.qkv[c.width : c.width + kv].view(c.kv_heads, c.head, c.width)
    v = first.qkv[c.width + kv :].view(c.kv_heads, c.head, c.width)
    theta = c.rope_base ** (-torch.arange(0, 6).float() * 2 / c.head)
    k[0] *= 0.1
    k[0, :6, 0] = 1.3
    for head, distance in ((0, 1), (1, 2)):
        q[head] *= 0.1
        q[head, :6, 0], q[head, half : half + 6, 0] = 1.3 * torch.cos(distance * theta), -1.3 * torch.sin(distance * theta)
    names = torch.linalg.qr(torch.randn(size, size))[0]
    v[0] = 0
    v[0, :, who] = names[: c.head]
    first.o.view(c.width, c.heads, c.head)[channel, 0] = 0.15 * torch.eye(c.head)
    # Half of the channel for each pair of heads, in the pairs that hardly turn.
    q = second.qkv[: c.width].view(c.heads, c.head, c.width)
    k = second.qkv[c.width : c.width + kv].view(c.kv_heads, c.head, c.width)
    v = second.qkv[c.width + kv :].view(c.kv_heads, c.head, c.width)
    slow = torch.cat([torch.arange(half // 2, half), torch.arange(half // 2, half) + half])
    for g in range(c.kv_heads):
        part = slice(g * half, (g + 1) * half)
        k[g] *= 0.1
        k[g, slow] = 0
        for i, row in enumerate(slow):
            k[g, row, c.width - c.head + g * half + i] = 2.0
        for head in range(g * c.heads // c.kv_heads, (g + 1) * c.heads // c.kv_heads):
            q[head] *= 0.1
            for i, row in enumerate(slow):
                q[head, row] = 0
                q[head, row, who] = 2.5 * names[: c.head][part][i]
            second.o.view(c.width, c.heads, c.head)[who, head] = 0.4 * names[g * c.head : (g + 1) * c.head].T
        v[g] = 0
        v[g, :, who] = names[g * c.head : (g + 1) * c.head]


def orthogonal(g):
    """Five steps of Newton and Schulz: the nearest matrices whose singular values are about 1."""
    x = g / (g.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


class Muon:
    """Momentum whose steps are made orthogonal, all matrices of one shape at a time."""

    def __init__(self, matrices, decay):
        self.matrices, self.decay = matrices, decay  # (parameter, sizes of the matrices that it holds)
        self.momentum = [torch.zeros_like(p) for p, _ in matrices]

    @torch.no_grad()
    def step(self, lr, beta=0.95):
        shapes = {}
        for (p, sizes), m in zip(self.matrices, self.momentum):
            m.lerp_(p.grad, 1 - beta)
            g = p.grad.lerp(m, beta)
            p.mul_(1 - lr * self.decay)
            for w, part in zip(p.split(sizes), g.split(sizes)):
                wide = part if part.shape[0] <= part.shape[1] else part.T
                shapes.setdefault(wide.shape, []).append((w, wide))
            p.grad = None
        for group in shapes.values():
            for (w, wide), step in zip(group, orthogonal(torch.stack([g for _, g in group]))):
                step = step if w.shape == wide.shape else step.T
                w.add_(step, alpha=-lr * max(1, w.shape[0] / w.shape[1]) ** 0.5)


def optimizers(model):
    c = model.c
    kv = c.kv_heads * c.head
    matrices = []
    for l in model.layers:
        matrices += [(l.qkv, [c.width, kv, kv]), (l.o, [c.width]), (l.gate_up, [c.hidden, c.hidden]), (l.down, [c.width])]
    norms = [p for n, p in model.named_parameters() if "norm" in n]
    adam = torch.optim.AdamW([model.embed, *norms], betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0)
    return Muon(matrices, 0.05), adam


class Talks:
    """Conversations as they were written, in order."""

    def __init__(self, name):
        self.tokens = np.fromfile(name + ".tokens", dtype="<u2")
        self.labels = np.fromfile(name + ".labels", dtype=np.uint8)
        self.lengths = np.fromfile(name + ".lengths", dtype="<u4").astype(np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])

    def batch(self, index):
        """Tokens and labels, padded behind with what counts for nothing."""
        t = int(-(-self.lengths[index].max() // 16) * 16)
        ids, labels = np.zeros((len(index), t), np.int64), np.zeros((len(index), t), np.int64)
        for row, i in enumerate(index):
            a, n = self.starts[i], self.lengths[i]
            ids[row, :n], labels[row, :n] = self.tokens[a : a + n], self.labels[a : a + n]
        return torch.from_numpy(ids), torch.from_numpy(labels)

    def batches(self, size, window, rng, longest):
        """Batches of about size tokens: within windows of conversations in order, like lengths together."""
        for low in range(0, len(self.lengths), window):
            index = np.arange(low, min(low + window, len(self.lengths)))
            index = index[self.lengths[index] <= longest]
            index = index[np.argsort(self.lengths[index] + rng.random(len(index)) * 8)]
            groups, group = [], []
            for i in index:
                if group and self.lengths[i] * (len(group) + 1) > size * 1.1:
                    groups.append(group)
                    group = []
                group.append(i)
            groups.append(group)
            for g in rng.permutation(len(groups)):
                yield np.array(groups[g])


def nearest_q8(w):
    """What Q8_0 makes of a matrix: blocks of 32 with one scale."""
    blocks = w.reshape(-1, 32)
    scale = (blocks.abs().amax(1, keepdim=True) / 127).half().float()
    return torch.where(scale > 0, (blocks / scale.clamp(min=1e-12)).round() * scale, torch.zeros_like(blocks)).reshape(w.shape)


@torch.no_grad()
def quantize(model):
    for n, p in model.named_parameters():
        if "norm" not in n:
            p.copy_(nearest_q8(p))


@torch.no_grad()
def score(model, talks, order):
    """The share of answers of each task in which every token would be the greedy choice."""
    right, total = np.zeros(len(TASKS)), np.zeros(len(TASKS))
    order = order[np.argsort(talks.lengths[order])]
    for low in range(0, len(order), 16):
        ids, labels = talks.batch(order[low : low + 16])
        hit = model(ids[:, :-1], labels[:, 1:] > 0).argmax(-1) == ids[:, 1:][labels[:, 1:] > 0]
        good = torch.ones_like(labels[:, 1:], dtype=torch.bool)
        good[labels[:, 1:] > 0] = hit
        for row in range(len(ids)):
            l = labels[row].numpy()
            edges = np.flatnonzero(np.diff(np.concatenate([[0], l, [0]])))
            for a, b in zip(edges[::2], edges[1::2]):
                total[l[a] - 1] += 1
                right[l[a] - 1] += bool(good[row, a - 1 : b - 1].all())
    return right, total


def shown(right, total):
    parts = [f"{t} {100 * r / n:.0f}" for t, r, n in zip(TASKS, right, total) if n]
    return f"all {100 * right.sum() / total.sum():.1f} % ({', '.join(parts)})"


def save(model, path):
    """Writes safetensors of 32 bits."""
    head, data = {}, bytearray()
    for name, w in model.tensors().items():
        raw = w.detach().float().contiguous().numpy().tobytes()
        head[name] = {"dtype": "F32", "shape": list(w.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".new", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)
    os.replace(path + ".new", path)


class Ranks:
    """The processes that train, one per core, each on its share of every batch."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size
        if size > 1:
            dist.init_process_group("gloo", rank=rank, world_size=size)

    def sum(self, tensor):
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def share(self, model, loss):
        """Sums gradients, losses and CPU seconds; the sums replace the gradients."""
        grads = [p.grad for p in model.parameters()]
        flat = self.sum(torch.cat([g.flatten() for g in grads] + [torch.tensor([loss, time.process_time()])]))
        for g, part in zip(grads, flat[:-2].split([g.numel() for g in grads])):
            g.copy_(part.view_as(g))
        return flat[-2].item(), flat[-1].item()

    def score(self, model, talks, limit=None):
        counts = score(model, talks, np.arange(len(talks.lengths))[: limit or None][self.rank :: self.size])
        return self.sum(torch.from_numpy(np.stack(counts))).numpy()


def train(rank, a):
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # a fifth of the time
    torch.manual_seed(a.seed)
    ranks = Ranks(rank, a.processes)
    say = print if rank == 0 else lambda *_, **__: None
    model = Llama(Config)
    wire(model)
    muon, adam = optimizers(model)
    state = {"step": 0, "seen": 0, "spent": 0.0}
    if a.resume and os.path.exists(a.out + ".state"):
        saved = torch.load(a.out + ".state")
        model.load_state_dict(saved["model"])
        adam.load_state_dict(saved["adam"])
        muon.momentum, state = saved["muon"], saved["state"]
    talks, held = Talks(a.data + "/train"), Talks(a.data + "/held")
    say(f"{sum(p.numel() for p in model.parameters())} parameters, {len(talks.tokens)} tokens", flush=True)
    step, seen, before = 0, 0, state["spent"]
    loss_sum, taught, scored, wall = 0.0, 0, before, time.time()
    rng = np.random.default_rng(a.seed)
    for index in talks.batches(a.batch, 512, rng, a.longest):
        step, seen = step + 1, seen + int(talks.lengths[index].sum())
        if step <= state["step"]:
            continue  # it was learned before
        rate = float(np.interp(seen / len(talks.tokens), *zip(*RATES)))
        ids, labels = talks.batch(index)
        count = int((labels[:, 1:] > 0).sum())
        ids, labels = ids[rank :: ranks.size], labels[rank :: ranks.size]
        mask = labels[:, 1:] > 0
        loss = F.cross_entropy(model(ids[:, :-1], mask), ids[:, 1:][mask], reduction="sum") / max(count, 1)
        loss.backward()
        loss, spent = ranks.share(model, loss.item())
        spent += before
        for group in adam.param_groups:
            group["lr"] = a.adam * rate
        adam.step()
        adam.zero_grad()
        muon.step(a.muon * rate)
        loss_sum, taught = loss_sum + loss * count, taught + count
        if spent - scored > a.every * 60:
            scored = spent
            counts = ranks.score(model, held, a.held)
            say(f"{spent / 60:.1f} CPU-minutes, {(time.time() - wall) / 60:.1f} of the clock, step {step}, {seen / 1e6:.2f} M tokens, loss {loss_sum / taught:.4f}, rate {rate:.2f}: {shown(*counts)}", flush=True)
            loss_sum, taught = 0.0, 0
            if rank == 0:
                save(model, a.out)
                state = {"step": step, "seen": seen, "spent": spent}
                torch.save({"model": model.state_dict(), "adam": adam.state_dict(), "muon": muon.momentum, "state": state}, a.out + ".state.new")
                os.replace(a.out + ".state.new", a.out + ".state")
    if rank == 0:
        save(model, a.out)
    spent = before + ranks.sum(torch.tensor([time.process_time()])).item()
    say(f"{spent / 60:.1f} CPU-minutes, {seen / 1e6:.2f} M tokens: {shown(*ranks.score(model, held))}", flush=True)
    quantize(model)
    say(f"as Q8_0: {shown(*ranks.score(model, held))}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="folder that train data wrote")
    p.add_argument("--out", required=True, help="safetensors file")
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--batch", type=int, default=4096, help="tokens")
    p.add_argument("--muon", type=float, default=0.02, help="learning rate of the layers")
    p.add_argument("--adam", type=float, default=0.01, help="learning rate of the embedding and the norms")
    p.add_argument("--every", type=float, default=8, help="CPU-minutes between scores")
    p.add_argument("--held", type=int, default=300, help="conversations for these scores; the last ones take all")
    p.add_argument("--longest", type=int, default=2048, help="tokens of a conversation")
    p.add_argument("--resume", action="store_true", help="from the last score on")
    a = p.parse_args()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    if a.processes == 1:
        train(0, a)
    else:
        torch.multiprocessing.spawn(train, (a,), nprocs=a.processes)


if __name__ == "__main__":
    main()
