"""Image models in JAX: functions of Weights, images [B,H,W,3] and the sizes, which give logits."""
import jax
import jax.numpy as jnp
import numpy as np

from jax_layers import (attention, batch_norm, conv, cut_patches, depthwise, join_heads, layer_norm,
                        linear, max_pool, mlp, softmax, split_heads, wide, window_attention)

# ---- ResNet, with the names of torchvision ----


def bottleneck(p, x, dim, stride):
    skip = x
    if stride > 1 or x.shape[-1] != 4 * dim:
        d = p.at("downsample")
        skip = batch_norm(d.at(1), conv(d.at(0), x, 4 * dim, 1, stride))
    x = jax.nn.relu(batch_norm(p.at("bn1"), conv(p.at("conv1"), x, dim, 1)))
    x = jax.nn.relu(batch_norm(p.at("bn2"), conv(p.at("conv2"), x, dim, 3, stride)))
    return jax.nn.relu(batch_norm(p.at("bn3"), conv(p.at("conv3"), x, 4 * dim, 1)) + skip)


def resnet(p, x, depths=(3, 4, 6, 3), classes=1000):
    x = x.astype(p.store.dtype)
    x = max_pool(jax.nn.relu(batch_norm(p.at("bn1"), conv(p.at("conv1"), x, 64, 7, 2))))
    for i, depth in enumerate(depths):
        for j in range(depth):
            stride = 2 if i > 0 and j == 0 else 1
            x = bottleneck(p.at(f"layer{i + 1}").at(j), x, 64 << i, stride)
    return linear(p.at("fc"), wide(x).mean((1, 2)).astype(x.dtype), classes)


# ---- DeiT, with the names of timm ----


def with_token(p, name, x, n=1):
    """x [B,N,D] after n rows that are the same for every image."""
    rows = p(name, (1, n, x.shape[-1])).astype(x.dtype)
    return jnp.concatenate([jnp.broadcast_to(rows, (len(x), *rows.shape[1:])), x], 1)


def deit(p, x, dim=384, depth=12, heads=6, patch=16, classes=1000):
    x = conv(p.at("patch_embed").at("proj"), x.astype(p.store.dtype), dim, patch, patch, 0, True)
    x = with_token(p, "cls_token", x.reshape(len(x), -1, dim))
    x = x + p("pos_embed", (1, *x.shape[1:])).astype(x.dtype)
    for i in range(depth):
        b = p.at("blocks").at(i)
        y = linear(b.at("attn").at("qkv"), layer_norm(b.at("norm1"), x, 1e-6), 3 * dim)
        y = attention(*(split_heads(t, heads) for t in jnp.split(y, 3, -1)))
        x = x + linear(b.at("attn").at("proj"), join_heads(y), dim)
        x = x + mlp(b.at("mlp"), layer_norm(b.at("norm2"), x, 1e-6), 4 * dim)
    return linear(p.at("head"), layer_norm(p.at("norm"), x[:, 0], 1e-6), classes)


# ---- ViL ----


def places(rows, cols, at=0):
    y, x = np.meshgrid(np.arange(rows) + at, np.arange(cols) + at, indexing="ij")
    return np.stack([y, x], -1).reshape(-1, 2)


def relative_bias(p, heads, queries, keys, reach):
    """[heads,queries,keys] from the table of row and column differences."""
    table = p("local_relative_position_bias_table",
              ((2 * reach[0] + 1) * (2 * reach[1] + 1), heads), "zeros")
    d = queries[:, None] - keys[None]
    index = (d[..., 0] + reach[0]) * (2 * reach[1] + 1) + d[..., 1] + reach[1]
    return table[index].transpose(2, 0, 1)


def vil_attention(p, x, heads, size, w, g):
    """w > 0: sliding chunks; 0: full; g global tokens first."""
    dim = x.shape[-1]
    if w:
        parts = [linear(p.at("query"), x, dim)]
        parts += jnp.split(linear(p.at("kv"), x, 2 * dim), 2, -1)
        near = relative_bias(p, heads, places(w, w), places(3 * w, 3 * w, -w), [2 * w - 1] * 2)
    else:
        parts = jnp.split(linear(p.at("qkv"), x, 3 * dim), 3, -1)
        near = relative_bias(p, heads, places(*size), places(*size), [n - 1 for n in size])
    q, k, v = (split_heads(t, heads) for t in parts)
    if g:
        between = p("g2l_relative_position_bias", (2, heads, g), "zeros")
        corner = p("g2g_relative_position_bias", (heads, g, g), "zeros")
        cells = k.shape[1] - g
        top = jnp.concatenate([corner, jnp.repeat(between[0][:, :, None], cells, 2)], 2)
    if w:
        y = window_attention(q[:, g:] * q.shape[-1] ** -0.5, k[:, g:], v[:, g:], k[:, :g],
                             v[:, :g], size, w, w, near, between[1] if g else None)
        y = jnp.concatenate([attention(q[:, :g], k, v, top), y], 1) if g else y
    else:
        if g:
            left = jnp.repeat(between[1][:, None], cells, 1)
            near = jnp.concatenate([top, jnp.concatenate([left, near], 2)], 1)
        y = attention(q, k, v, near)
    return linear(p.at("proj"), join_heads(y), dim)


VIL_TINY = ("l1,h1,d48,n1,s1,g1,p4,f7,a0_l2,h3,d96,n1,s1,g1,p2,f7,a0_l3,h3,d192,n9,s0,g1,p2,f7,a0_"
            "l4,h6,d384,n1,s0,g0,p2,f7,a0")


def vil(p, x, arch=VIL_TINY, classes=1000):
    """Of an official configuration string."""
    x, dense = x.astype(p.store.dtype), False
    for stage in arch.split("_"):
        c = {part[0]: int(part[1:]) for part in stage.split(",")}
        layers, dense, g = p.at(f"layer{c['l']}"), dense or not c["s"], c["g"]
        x = conv(layers.at("0.proj"), x, c["d"], c["p"], c["p"], 0, True)
        size = x.shape[1:3]
        x = layer_norm(layers.at("0.norm_embed"), x.reshape(len(x), -1, c["d"]), 1e-6)
        x = with_token(layers, "0.cls_token", x, g) if g else x
        for i in range(1, 2 * c["n"], 2):
            a, m = layers.at(i), layers.at(i + 1)
            y = layer_norm(a.at("norm"), x, 1e-6)
            x = x + vil_attention(a.at("attn"), y, c["h"], size, 0 if dense else c["f"], g)
            x = x + mlp(m.at("mlp"), layer_norm(m.at("norm"), x, 1e-6), 4 * c["d"])
        last, x = x, x[:, g:].reshape(len(x), *size, c["d"])
    last = layer_norm(p.at("norm"), last, 1e-6)
    return linear(p.at("head"), last[:, 0] if g else last.mean(1), classes)


# ---- CvT*-LS ----


def ls_attention(p, x, heads, size, rank, w, cls):
    """Windows and `rank` projected keys of the map; with cls, a class row first."""
    dim = x.shape[-1]
    row, image = x[:, :cls], x[:, cls:].reshape(len(x), *size, dim)

    def project(name):
        c = p.at(f"conv_proj_{name}")
        y = batch_norm(c.at("bn"), depthwise(c.at("conv"), image)).reshape(len(x), -1, dim)
        return linear(p.at(f"proj_{name}"), jnp.concatenate([row, y], 1), dim)

    q, k, v = (project(name) for name in "qkv")
    q = split_heads(q, heads) * (dim // heads) ** -0.5
    k, v = (layer_norm(p.at("dual_ln_full"), t) for t in (k, v))
    scores = depthwise(p.at("conv_proj_p.conv"), image, True).reshape(len(x), -1, dim)
    scores = linear(p.at("proj_p"), scores, heads * rank).reshape(len(x), -1, heads, rank)
    weights = softmax(scores.transpose(0, 2, 3, 1), x.dtype)
    k, v = split_heads(k, heads), split_heads(v, heads)

    def compress(t):
        low = jnp.einsum("bhrn,bnhm->brhm", weights, t[:, cls:])
        return split_heads(layer_norm(p.at("dual_ln_dp"), join_heads(low)), heads)

    far = [jnp.concatenate([compress(t), t[:, :cls]], 1) for t in (k, v)]
    y = window_attention(q[:, cls:], k[:, cls:], v[:, cls:], *far, size, w, max(1, w // 2))
    if cls:
        k, v = (jnp.concatenate([t[:, :1], y], 1) for t in (k, v))
        y = jnp.concatenate([attention(q[:, :1], k, v, scale=1.0), y], 1)
    return linear(p.at("proj"), join_heads(y), dim) if heads > 1 else join_heads(y)


def cvt_ls(p, x, dims=(64, 192, 384), heads=(1, 3, 6), depth=(1, 2, 10), rank=(64, 16, 4),
           w=(8, 4, 2), classes=1000):
    x = x.astype(p.store.dtype)
    for i, dim in enumerate(dims):
        s, cls = p.at(f"stage{i}"), int(i + 1 == len(dims))
        kernel = (7, 4, 2) if i == 0 else (3, 2, 1)
        x = conv(s.at("patch_embed.proj"), x, dim, *kernel, True)
        size = x.shape[1:3]
        x = layer_norm(s.at("patch_embed.norm"), x.reshape(len(x), -1, dim))
        x = with_token(s, "cls_token", x) if cls else x
        for j in range(depth[i]):
            b = s.at("blocks").at(j)
            y = layer_norm(b.at("norm1"), x)
            x = x + ls_attention(b.at("attn"), y, heads[i], size, rank[i], w[i], cls)
            x = x + mlp(b.at("mlp"), layer_norm(b.at("norm2"), x), 4 * dim)
        x = x if cls else x.reshape(len(x), *size, dim)
    return linear(p.at("head"), layer_norm(p.at("norm"), x[:, 0]), classes)


# ---- ViT-LSLA ----


def table_bias(p, kind, heads, w):
    n, table = np.arange(w * w), p(f"{kind}_relative_position_bias_table",
                                   ((2 * w - 1) ** 2, heads), "zeros")
    y, x = n // w, n % w
    index = (y[:, None] - y + w - 1) * (2 * w - 1) + x[:, None] - x + w - 1
    return table[index].transpose(2, 0, 1)


def lsla_attention(p, x, heads, w, hidden):
    """Windows [B,windows,w*w,D], with the input as keys and values; hidden: added to the logits."""
    dim, n = x.shape[-1], w * w
    q, kv = split_heads(linear(p.at("fc_q"), x, dim), heads), split_heads(x, heads)
    z = wide(jnp.einsum("bwqhm,bwkhm->bwhqk", q, kv)) * p("dynamic_scale", (n, n), "ones")
    z = z + table_bias(p, "inner", heads, w)
    z = z if hidden is None else z + hidden[:, None]
    weights = jax.nn.softmax(z, -1) + table_bias(p, "outer", heads, w)
    y = jnp.einsum("bwhqk,bwkhm->bwqhm", weights.astype(x.dtype), kv)
    return linear(p.at("proj"), join_heads(y), dim)


def cut(x, w):
    """[B,H,W,D] -> [B,windows,w*w,D]"""
    return cut_patches(x, w).reshape(len(x), -1, w * w, x.shape[-1])


def regions(size, w, shift):
    """[windows,w*w,w*w]: -100 between cells that the roll brought together."""
    part = [np.searchsorted([n - w, n - shift], np.arange(n), "right") for n in size]
    region = cut((3 * part[0][:, None] + part[1])[None, :, :, None], w)[0, :, :, 0]
    return (region[:, :, None] != region[:, None, :]) * np.float32(-100)


def lsla_block(p, x, heads, odd, window, ratio):
    b, h, width, dim = x.shape
    w = min(window, h, width)
    shift = w // 2 if odd and min(h, width) > window else 0
    y = layer_norm(p.at("norm1"), x)
    y = jnp.roll(y, (-shift, -shift), (1, 2)) if shift else y
    hidden = regions((h, width), w, shift) if shift else None
    y = lsla_attention(p.at("attn"), cut(y, w), heads, w, hidden)
    y = y.reshape(b, h // w, width // w, w, w, dim).swapaxes(2, 3).reshape(x.shape)
    x = x + (jnp.roll(y, (shift, shift), (1, 2)) if shift else y)
    return x + mlp(p.at("mlp"), layer_norm(p.at("norm2"), x), ratio * dim)


def vit_lsla(p, x, dim=96, depths=(2, 4, 8, 2), heads=(3, 6, 12, 24), window=7, ratio=2,
             classes=102):
    x = x.astype(p.store.dtype)
    for i, out in enumerate((dim // 2, dim)):
        s = p.at("stem").at(i)
        x = jax.nn.hard_swish(batch_norm(s.at("bn"), conv(s.at("conv"), x, out, 3, 2)))
    for i, depth in enumerate(depths):
        layer = p.at("layers").at(i)
        for j in range(depth):
            x = lsla_block(layer.at("blocks").at(j), x, heads[i], j % 2 == 1, window, ratio)
        if i + 1 < len(depths):
            dim, d = 2 * dim, layer.at("downsample")
            x = layer_norm(d.at("norm"), conv(d.at("conv"), x, dim, 3, 2, 1, True))
    return linear(p.at("head"), layer_norm(p.at("norm"), x).mean((1, 2)), classes)
