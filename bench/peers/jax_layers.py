"""Layers of the JAX peers in jax.numpy and lax. Maps are [B,H,W,C].

A model is a function of Weights and its input. It asks for each parameter where it uses it, by the
name that PyTorch's module has and with its shape, so one definition serves to list the parameters
(`listed`) and to compute. Convolutions of 1 x 1 and of patches are products, depthwise ones sums of
shifted maps, which XLA can fuse with the ops around them.
"""
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

BUFFERS = ("mean", "variance")  # kinds of what is updated without a gradient


class Store:
    """What all Weights of a model share. Without values, shapes and kinds are noted in `asked`."""

    def __init__(self, values=None, key=None, dtype=jnp.float32):
        self.values, self.key, self.dtype = values, key, dtype
        self.asked, self.fresh = {}, {}

    def next_key(self):
        self.key, key = jax.random.split(self.key)
        return key


class Weights:
    """The parameters and buffers of a part of a model. Kinds: linear [in,out] and conv
    [h,w,in,out], which PyTorch stores as [out,in] and [out,in,h,w]; drawn; ones; zeros; mean and
    variance."""

    def __init__(self, store, prefix=""):
        self.store, self.prefix = store, prefix

    def at(self, name):
        return Weights(self.store, f"{self.prefix}{name}.")

    def __call__(self, name, shape, kind="drawn"):
        name = self.prefix + name
        if self.store.values is None:
            self.store.asked[name] = (tuple(shape), kind)
            return jnp.zeros(shape)
        return self.store.values[name]

    def put(self, name, value):
        """Stores a buffer's value for the next step."""
        name = self.prefix + name
        if self.store.values is not None:
            self.store.fresh[name] = lax.stop_gradient(value).astype(self.store.values[name].dtype)


def listed(model, *inputs):
    """{name: (shape, kind)} of all that the model asks for."""
    store = Store()
    jax.eval_shape(lambda *x: model(Weights(store), *x), *inputs)
    return store.asked


def drawn(asked, seed=1):
    """Initial values."""
    rng = np.random.default_rng(seed)
    fill = dict(zeros=0.0, mean=0.0, ones=1.0, variance=1.0)

    def value(shape, kind):
        if kind in fill:
            return np.full(shape, fill[kind], np.float32)
        return 0.02 * rng.standard_normal(shape, np.float32)

    return {name: jnp.asarray(value(*entry)) for name, entry in asked.items()}


def wide(x):
    """At least f32, for sums."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


# ---- dense layers, norms, losses ----


def linear(p, x, out, bias=True):
    y = x @ p("weight", (x.shape[-1], out), "linear").astype(x.dtype)
    return y + p("bias", (out,), "zeros").astype(x.dtype) if bias else y


def layer_norm(p, x, eps=1e-5):
    y = wide(x)
    y = y - y.mean(-1, keepdims=True)
    y = y * lax.rsqrt((y * y).mean(-1, keepdims=True) + eps)
    weight, bias = p("weight", x.shape[-1:], "ones"), p("bias", x.shape[-1:], "zeros")
    return (y * weight + bias).astype(x.dtype)


def batch_norm(p, x, eps=1e-5):
    """In training: by the batch's statistics, of which the buffers take a tenth."""
    dim, axes = x.shape[-1:], tuple(range(x.ndim - 1))
    n, y = x.size // x.shape[-1], wide(x)
    mean = y.mean(axes)
    variance = jnp.maximum((y * y).mean(axes) - mean * mean, 0.0)
    for name, value in (("mean", mean), ("var", variance * n / (n - 1))):
        kind = BUFFERS[name == "var"]
        p.put(f"running_{name}", 0.9 * p(f"running_{name}", dim, kind) + 0.1 * value)
    scale = lax.rsqrt(variance + eps) * p("weight", dim, "ones")
    return (y * scale + (p("bias", dim, "zeros") - mean * scale)).astype(x.dtype)


def gelu(x):
    return jax.nn.gelu(x, approximate=False)


def mlp(p, x, hidden, names=("fc1", "fc2"), act=gelu):
    return linear(p.at(names[1]), act(linear(p.at(names[0]), x, hidden)), x.shape[-1])


def dropout(p, x, rate):
    """The rate is rounded to 2^-16."""
    if rate == 0 or p.store.key is None:
        return x
    keep = jax.random.bits(p.store.next_key(), x.shape, jnp.uint16) >= round(rate * 65536)
    return jnp.where(keep, x / (1 - rate), 0)


def cross_entropy(z, labels):
    """The mean over all labels, z [...,classes]."""
    z = wide(z)
    chosen = jnp.where(labels[..., None] == jnp.arange(z.shape[-1]), z, 0).sum(-1)
    return (jax.nn.logsumexp(z, -1) - chosen).mean()


# ---- attention ----


def split_heads(x, heads):
    """[...,n,D] -> [...,n,heads,D/heads]"""
    return x.reshape(*x.shape[:-1], heads, -1)


def join_heads(x):
    return x.reshape(*x.shape[:-2], -1)


def softmax(z, dtype):
    return jax.nn.softmax(wide(z), -1).astype(dtype)


def attention(q, k, v, bias=None, scale=None, drop=lambda weights: weights):
    """q [B,n,h,M], k, v [B,m,h,M] -> [B,n,h,M]; bias [h,n,m] or [n,m] is added to the logits."""
    q = q * (q.shape[-1] ** -0.5 if scale is None else scale)
    z = jnp.einsum("...qhm,...khm->...hqk", q, k)
    z = z if bias is None else z + bias
    return jnp.einsum("...hqk,...khm->...qhm", drop(softmax(z, q.dtype)), v)


# ---- maps ----


def cut_patches(x, s):
    """[B,H,W,C] -> [B,H/s,W/s,s*s*C]"""
    b, h, w, c = x.shape
    x = x.reshape(b, h // s, s, w // s, s, c).swapaxes(2, 3)
    return x.reshape(b, h // s, w // s, -1)


def conv(p, x, out, kernel, stride=1, pad=None, bias=False):
    """pad: by default half of the kernel."""
    pad = kernel // 2 if pad is None else pad
    w = p("weight", (kernel, kernel, x.shape[-1], out), "conv").astype(x.dtype)
    if kernel == 1 or kernel == stride and pad == 0:
        x = x[:, ::stride, ::stride] if kernel == 1 else cut_patches(x, kernel)
        y = x @ w.reshape(-1, out)
    else:
        y = lax.conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2,
                                     dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y + p("bias", (out,), "zeros").astype(x.dtype) if bias else y


def shifted(x, kernel, stride, pad, fill=0.0):
    """The map that each tap of a kernel sees, row by row."""
    b, h, w, c = x.shape
    x = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=fill)
    down, across = (stride * ((n + 2 * pad - kernel) // stride) + 1 for n in (h, w))
    return [x[:, i : i + down : stride, j : j + across : stride]
            for i in range(kernel) for j in range(kernel)]


def depthwise(p, x, standardised=False):
    """3 x 3 with bias; `standardised` divides the weights of a channel by their deviation."""
    w = p("weight", (3, 3, 1, x.shape[-1]), "conv").reshape(9, -1)
    if standardised:
        w = (w - w.mean(0)) / (w.std(0, ddof=1) + 1e-5)
    w = w.astype(x.dtype)
    y = sum(tap * w[i] for i, tap in enumerate(shifted(x, 3, 1, 1)))
    return y + p("bias", x.shape[-1:], "zeros").astype(x.dtype)


def max_pool(x):
    """3 x 3, stride 2."""
    y = -math.inf
    for tap in shifted(x, 3, 2, 1, -math.inf):
        y = jnp.maximum(y, tap)
    return y


# ---- windows of a map ----


def neighbours(x, axis, w, halo, xp=jnp):
    """Cuts an axis, padded to whole windows, into windows of w cells with `halo` cells on both
    sides: [...,n,...] -> [...,windows,w+2*halo,...]."""
    n = x.shape[axis]
    count, unit = -(-n // w), math.gcd(w, halo)
    pad = [(0, 0)] * x.ndim
    pad[axis] = (halo, count * w - n + halo)
    x = xp.pad(x, pad)
    x = x.reshape(*x.shape[:axis], -1, unit, *x.shape[axis + 1 :])
    every, rows = w // unit, (slice(None),) * axis
    last = (count - 1) * every + 1
    parts = [x[rows + (slice(j, j + last, every),)] for j in range((w + 2 * halo) // unit)]
    return xp.concatenate(parts, axis + 1)


def windows(x, w, halo=0, xp=jnp):
    """[B,H,W,...] -> [B,windows,(w+2*halo)^2,...]"""
    x = neighbours(neighbours(x, 1, w, halo, xp), 3, w, halo, xp)
    x = x.swapaxes(2, 3)
    return x.reshape(len(x), x.shape[1] * x.shape[2], x.shape[3] * x.shape[4], *x.shape[5:])


def join_windows(x, w, size):
    """[B,windows,w*w,...] -> [B,H*W,...]"""
    h, across = (-(-n // w) for n in size)
    x = x.reshape(len(x), h, across, w, w, *x.shape[3:]).swapaxes(2, 3)
    x = x.reshape(len(x), h * w, across * w, *x.shape[5:])[:, : size[0], : size[1]]
    return x.reshape(len(x), -1, *x.shape[3:])


def window_attention(q, k, v, extra_k, extra_v, size, w, halo, bias=None, extra_bias=None):
    """q (scaled), k, v [B,H*W,h,M] of the map, extra keys [B,E,h,M], biases [h,w*w,keys], [h,E]."""
    cells = lambda x: x.reshape(len(x), *size, *x.shape[2:])
    q, k, v = windows(cells(q), w), windows(cells(k), w, halo), windows(cells(v), w, halo)
    local = jnp.einsum("bcqhm,bckhm->bchqk", q, k)
    local = wide(local) if bias is None else local + bias
    visible = windows(np.ones((1, *size)), w, halo, np)[0] > 0  # [windows,keys]
    local = jnp.where(visible[:, None, None], local, -jnp.inf)
    far = jnp.einsum("bcqhm,behm->bchqe", q, extra_k)
    far = far if extra_bias is None else far + extra_bias[:, None]
    weights = softmax(jnp.concatenate([far, local], -1), q.dtype)
    n = extra_k.shape[1]
    y = jnp.einsum("bchqe,behm->bcqhm", weights[..., :n], extra_v)
    y = y + jnp.einsum("bchqk,bckhm->bcqhm", weights[..., n:], v)
    return join_windows(y, w, size)
