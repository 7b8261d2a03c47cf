"""Attention."""
import torch
import torch.nn.functional as F

from op_cases_kit import HEADS, WIDTH, Numbers


def attention(causal, heads=HEADS):
    def apply(*inputs):
        q, k, v = (x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2) for x in inputs)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return y.transpose(1, 2)  # the layout that the following projection reads
    return apply


def grouped(q, k, v):
    q, k, v = (x.view(x.shape[0], x.shape[1], -1, WIDTH // HEADS).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)


BIAS = {}


def alibi(q, k, v):
    """The bias of all pairs is made once."""
    n = q.shape[1]
    if n not in BIAS:
        slopes = 2.0 ** -torch.arange(1, HEADS + 1)
        distance = torch.arange(n)[:, None] - torch.arange(n)
        BIAS[n] = (-slopes[:, None, None] * distance).masked_fill(distance < 0, float("-inf"))[None]
    q, k, v = (x.view(1, n, HEADS, WIDTH // HEADS).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=BIAS[n]).transpose(1, 2)


def sequence(w):
    """Long-short attention of an encoder: windows of 2 w keys and low-rank keys in one softmax; padding is masked."""
    def windows(x):
        return F.pad(x, (0, 0, w // 2, w // 2)).unfold(2, 2 * w, w).transpose(-2, -1)  # [B,H,N/w,2w,D]

    def apply(q, k, v, low_k, low_v):
        b, n, _ = q.shape
        q, k, v, low_k, low_v = (x.view(b, -1, 2, 32).transpose(1, 2) for x in (q, k, v, low_k, low_v))
        q = q / 32 ** 0.5
        near = q.reshape(b, 2, n // w, w, 32) @ windows(k).transpose(-2, -1)
        hidden = F.pad(torch.zeros(n), (w // 2, w // 2), value=1.0).unfold(0, 2 * w, w).bool()
        near = near.masked_fill(hidden[:, None], float("-inf")).reshape(b, 2, n, 2 * w)
        p = torch.softmax(torch.cat([q @ low_k.transpose(-2, -1), near], -1), -1)
        r = low_k.shape[2]
        y = (p[..., r:].reshape(b, 2, n // w, w, 2 * w) @ windows(v)).reshape(b, 2, n, 32)
        return (p[..., :r] @ low_v + y).transpose(1, 2)
    return apply


def band(w, heads):
    """Longformer's windows: exactly w keys to either side. A chunk of w queries gets three chunks of keys and a mask."""
    def chunks(x, n, step):
        return x.unfold(1, n, step).flatten(0, 1).unflatten(1, (heads, -1)).transpose(-2, -1)

    def apply(q, k, v):
        n = q.shape[1]
        if (n, w) not in BIAS:
            query = torch.arange(n).view(-1, w, 1)
            key = torch.arange(-w, n - w, w)[:, None, None] + torch.arange(3 * w)
            BIAS[n, w] = (((key - query).abs() <= w) & (key >= 0) & (key < n))[:, None]
        k, v = (chunks(F.pad(x, (0, 0, w, w)), 3 * w, w) for x in (k, v))
        return F.scaled_dot_product_attention(chunks(q, w, w), k, v, attn_mask=BIAS[n, w]).transpose(1, 2)
    return apply


def lsh(qk, v, rotations, c=64):
    """Reformer's, without a mask."""
    n, rounds, count = qk.shape[1], rotations.shape[2], 2 * rotations.shape[3]
    x, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (qk, v))
    key = F.rms_norm(x, x.shape[-1:], eps=1e-6) * x.shape[-1] ** -0.5
    with torch.no_grad():
        z = torch.einsum("bhnd,hdrf->bhrnf", x, rotations)
        bucket = torch.cat([z, -z], -1).argmax(-1) + count * torch.arange(rounds, device=x.device)[:, None]
        order = bucket.flatten(2).argsort(stable=True)
        undo, order = order.argsort(), order % n

    def cut(t):
        return t.take_along_dim(order[..., None], 2).unflatten(2, (-1, c))

    def look(t):
        return torch.cat([t.roll(1, 2), t], 3)
    place = order.unflatten(2, (-1, c))
    s = cut(x) @ look(cut(key)).transpose(-1, -2)
    s = s.masked_fill(place[..., None] == look(place)[..., None, :], -1e5)
    lse = s.logsumexp(-1, keepdim=True)
    y = ((s - lse).exp() @ look(cut(v))).flatten(2, 3)
    y, lse = (t.take_along_dim(undo[..., None], 2).unflatten(2, (rounds, n)) for t in (y, lse.flatten(2, 3)))
    return (lse.softmax(2) * y).sum(2).transpose(1, 2)


def linear(q, k, v):
    q, k, v = (x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in (q, k, v))
    return ((F.elu(q) + 1) @ ((F.elu(k) + 1).transpose(-1, -2) @ v) * k.shape[2] ** -0.5).transpose(1, 2)


def performer(q, k, v, projection):
    """Positive features; maxima are constants."""
    def features(x, axes):
        x = x * x.shape[-1] ** -0.25
        u = x @ projection.T
        return torch.exp(u - x.square().sum(-1, keepdim=True) / 2 - u.detach().amax(axes, keepdim=True)) + 1e-4
    q, k, v = (x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in (q, k, v))
    q, k = features(q, -1), features(k, (-1, -2))
    return (q @ (k.transpose(-1, -2) @ v) / (q @ k.sum(2)[..., None])).transpose(1, 2)


def project_kv(k, v, scores):
    """The dynamic projection of whole sequences, 2 heads of rank 32."""
    b, n, _ = k.shape
    p = scores.view(b, n, 2, 32).permute(0, 2, 3, 1).softmax(-1)
    return torch.cat([p @ x.view(b, n, 2, 32).transpose(1, 2) for x in (k, v)], 2).transpose(1, 2)


# 32 documents as long, in words, as film reviews; PyTorch gets them padded.
REVIEWS = [43, 153, 323, 109, 221, 58, 162, 352, 116, 233, 69, 170, 389, 123, 247, 78, 179, 439, 131, 262, 86, 188,
           520, 138, 280, 94, 198, 709, 146, 300, 101, 209]
LONGEST = -(-max(REVIEWS) // 8) * 8


def padded_attention(q, k, v):
    seen = torch.arange(LONGEST) < torch.tensor(REVIEWS)[:, None]
    q, k, v = (x.view(len(REVIEWS), LONGEST, 2, 32).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None]).transpose(1, 2)


CASES = [("attention", "4096 d512 h8" + (" causal" if c else ""), attention(c), [(1, 4096, WIDTH)] * 3)
         for c in (False, True)] + [
    ("attention", "2048 d512 h8 causal ALiBi", alibi, [(1, 2048, WIDTH)] * 3),
    ("attention", "2048 d512 h8/2 causal", grouped, [(1, 2048, WIDTH), (1, 2048, 128), (1, 2048, 128)]),
    ("attention", "4x4096 d64 h2", attention(False, 2), [(4, 4096, 64)] * 3),
    ("window_attention", "4x4096 d64 h2 w8 r32", sequence(8), [(4, 4096, 64)] * 3 + [(4, 32, 64)] * 2),
    ("window_attention", "Longformer 2048 d768 h12", band(256, 12), [(1, 2048, 768)] * 3),
    ("packed_attention", "32 reviews d64 h2", padded_attention, [(32, LONGEST, 64)] * 3),
    ("packed_window_attention", "32 reviews d64 h2 w8 r32", sequence(8),
     [(32, LONGEST, 64)] * 3 + [(32, 32, 64)] * 2),
    ("linear_attention", "4096 d512 h8", linear, [(1, 4096, WIDTH)] * 3),
    ("linear_attention", "4096 d512 h8 m256", performer,
     [(1, 4096, WIDTH)] * 3 + [Numbers((256, WIDTH // HEADS), fixed=True)]),
    ("lsh_attention", "4096 d512 h8 c64 r2", lsh,
     [(1, 4096, WIDTH)] * 2 + [Numbers((HEADS, WIDTH // HEADS, 2, 64), fixed=True)]),
    ("chunk_project_kv", "4x4096x64 l4096 h2 r32", project_kv, [(4, 4096, 64)] * 3)]
