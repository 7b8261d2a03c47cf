"""Text models in JAX: functions of Weights, tokens [B,N] and the sizes, which give logits."""
import jax
import jax.numpy as jnp
import numpy as np

from jax_layers import (attention, dropout, gelu, join_heads, layer_norm, linear, mlp, softmax,
                        split_heads, wide)

# ---- GPT-2, with the names of transformers ----


def gpt2(p, ids, dim=768, depth=12, heads=12, places=1024, vocab=50257):
    p, n = p.at("transformer"), ids.shape[1]
    table = p("wte.weight", (vocab, dim))
    x = (table[ids] + p("wpe.weight", (places, dim))[:n]).astype(p.store.dtype)
    past = jnp.where(np.tri(n, dtype=bool), 0.0, -jnp.inf)

    def dense(p, x, out):  # transformers stores these as [in,out]
        y = x @ p("weight", (x.shape[-1], out)).astype(x.dtype)
        return y + p("bias", (out,), "zeros").astype(x.dtype)

    for i in range(depth):
        b = p.at("h").at(i)
        y = dense(b.at("attn.c_attn"), layer_norm(b.at("ln_1"), x), 3 * dim)
        y = attention(*(split_heads(t, heads) for t in jnp.split(y, 3, -1)), past)
        x = x + dense(b.at("attn.c_proj"), join_heads(y), dim)
        y = jax.nn.gelu(dense(b.at("mlp.c_fc"), layer_norm(b.at("ln_2"), x), 4 * dim))
        x = x + dense(b.at("mlp.c_proj"), y, dim)
    return layer_norm(p.at("ln_f"), x) @ table.T.astype(x.dtype)


# ---- RoBERTa as a classifier, with the names of transformers ----


def roberta(p, ids, dim=768, depth=12, heads=12, places=514, vocab=50265, classes=2, drop=0.1):
    e, n = p.at("roberta.embeddings"), ids.shape[1]
    x = e("word_embeddings.weight", (vocab, dim))[ids]
    x = x + e("position_embeddings.weight", (places, dim))[2 : n + 2]
    x = x + e("token_type_embeddings.weight", (1, dim))
    x = dropout(p, layer_norm(e.at("LayerNorm"), x), drop).astype(p.store.dtype)
    for i in range(depth):
        b = p.at("roberta.encoder.layer").at(i)
        own, out = b.at("attention.self"), b.at("attention.output")
        q, k, v = (split_heads(linear(own.at(name), x, dim), heads)
                   for name in ("query", "key", "value"))
        y = join_heads(attention(q, k, v, drop=lambda weights: dropout(p, weights, drop)))
        x = x + dropout(p, linear(out.at("dense"), y, dim), drop)
        x = layer_norm(out.at("LayerNorm"), x)
        y = mlp(b, x, 4 * dim, ("intermediate.dense", "output.dense"))
        x = layer_norm(b.at("output.LayerNorm"), x + dropout(p, y, drop))
    x = dropout(p, x[:, 0], drop)
    x = dropout(p, jnp.tanh(linear(p.at("classifier.dense"), x, dim)), drop)
    return linear(p.at("classifier.out_proj"), x, classes)


# ---- the Transformer-LS language model ----


def sinusoid(n, dim):
    """Rows by decreasing distance, n-1 to 0."""
    angle = np.arange(n - 1, -1, -1)[:, None] * 10000.0 ** (-np.arange(0, dim, 2) / dim)
    return np.concatenate([np.sin(angle), np.cos(angle)], 1)


def skewed(x, drop, width):
    """Moves row i of [...,n,m] to the left by `drop` and i times the difference of `width` and m:
    entry (i,j) is that at drop + i width + j of the rows laid end to end, or 0 behind them."""
    n, m = x.shape[-2:]
    x = x.reshape(*x.shape[:-2], n * m)[..., drop:]
    extra = n * width - (n * m - drop)
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, max(extra, 0))])[..., : n * width]
    return x.reshape(*x.shape[:-1], n, width)


def tiles(x, t, w):
    """[B,h,w+M,D] -> [B,h,M/t,w+t,D]: the rows of t queries and the w before them; t divides w."""
    b, h, n, d = x.shape
    parts = [x[:, :, j : n - w + j].reshape(b, h, -1, t, d) for j in range(0, w + t, t)]
    return jnp.concatenate(parts, 3)


def window_logits(q, q_pos, k, pos, w):
    """[B,h,M,w]: query i and its w last keys; k [B,h,w+M,D], pos [h,w,D], oldest first."""
    b, h, m, d = q.shape
    t = min(w, m)
    z = jnp.einsum("bhctd,bhcsd->bhcts", q.reshape(b, h, -1, t, d), tiles(k, t, w))
    z = skewed(z, 1, w + t + 1)[..., :w]  # query i of a tile sees columns i+1 .. i+w
    return z.reshape(b, h, m, w) + jnp.einsum("bhmd,hwd->bhmw", q_pos, pos)


def window_values(p, v, w):
    b, h, m, _ = p.shape
    t = min(w, m)
    p = p.reshape(b, h, -1, t, w)
    p = jnp.pad(p, [(0, 0)] * 4 + [(1, t)])  # row i then moves to the right by i
    p = skewed(p, 0, w + t)
    return jnp.einsum("bhcts,bhcsd->bhctd", p, tiles(v, t, w)).reshape(b, h, m, -1)


def ls_attention(p, h, cache, pos_win, pos_chunk, heads, chunk, rank, w):
    b, m, dim = h.shape
    old, new = cache.shape[1] // chunk, m // chunk
    heads_first = lambda x: split_heads(x, heads).swapaxes(-3, -2)
    key, value = (lambda x, name=name: linear(p.at(name), x, dim, False)
                  for name in ("proj_key", "proj_val"))

    def compress(x, scores):
        """[B,N,d] and [B,N,h*r] -> [B,N/chunk*r,d]"""
        s = wide(scores).reshape(b, -1, chunk, heads, rank, 1)
        s = jax.nn.softmax(s, 2).astype(x.dtype)
        y = (s * x.reshape(b, -1, chunk, heads, 1, dim // heads)).sum(2)  # [B,chunks,h,r,D]
        return y.swapaxes(2, 3).reshape(b, -1, dim)

    q = heads_first(linear(p.at("proj_query"), h, dim, False)) * (dim // heads) ** -0.5
    rows = jnp.concatenate([cache[:, cache.shape[1] - w :], h], 1)
    k, v = key(rows), value(rows)
    scores = linear(p.at("dconv_1"), h, heads * rank)
    before = compress(cache, linear(p.at("dconv_1"), cache, heads * rank))
    k_low, v_low = (
        heads_first(layer_norm(p.at("dual_ln_dproj"), jnp.concatenate([f(before), low], 1)))
        for f, low in ((key, compress(k[:, w:], scores)), (value, compress(v[:, w:], scores))))
    k, v = (heads_first(layer_norm(p.at("dual_ln_win"), x)) for x in (k, v))

    u = p("r_w_bias", (1, heads, 1, 1, dim // heads), "zeros")[:, :, 0].astype(q.dtype)
    s = p("r_r_bias", (1, heads, 1, dim // heads), "zeros").astype(q.dtype)
    r = heads_first(linear(p.at("r_net"), pos_win, dim, False))
    near = window_logits(q + u, q + s, k, r, w)

    r = heads_first(linear(p.at("r_net_chunk"), pos_chunk, dim))
    far = jnp.einsum("bhmd,bhnd->bhmn", q, k_low)
    place = q.reshape(b, heads, new, chunk, -1).swapaxes(2, 3)  # chunks next to the columns
    place = jnp.einsum("bhlcd,hnd->bhlcn", place, r)
    n = place.shape[-1]  # vector v of chunk c has column v + (new - c) rank
    place = jnp.pad(place, [(0, 0)] * 4 + [(0, rank)])
    far = far + skewed(place, new * rank, n).swapaxes(2, 3).reshape(far.shape)
    visible = np.arange(n) // rank < old + np.arange(m)[:, None] // chunk
    far = jnp.where(visible, wide(far), -jnp.inf)
    weights = softmax(jnp.concatenate([far, wide(near)], -1), h.dtype)
    y = jnp.einsum("bhmn,bhnd->bhmd", weights[..., :n], v_low)
    y = y + window_values(weights[..., n:], v, w)
    return linear(p.at("proj_out"), join_heads(y.swapaxes(1, 2)), dim, False)


def ls_lm(p, tokens, dim=512, hidden=2048, depth=12, heads=8, chunk=16, rank=1, w=512, vocab=208,
          drop=0.2):
    """The cache is as long as the segment."""
    b, m = tokens.shape
    table, dtype = p("in_emb.weight", (vocab, dim)), p.store.dtype
    h = dropout(p, table[tokens] * dim**0.5, drop).astype(dtype)
    pos_win = dropout(p, jnp.asarray(sinusoid(w, dim), dtype), drop)
    pos_chunk = jnp.asarray(sinusoid(2 * m // chunk * rank, dim), dtype)
    for i in range(depth):
        l = p.at("layers").at(i)
        cache = l("cache", (b, m, dim), "mean").astype(dtype)
        l.put("cache", h)
        x, cache = layer_norm(l.at("norm1"), h), layer_norm(l.at("norm1"), cache)
        y = ls_attention(l.at("attn"), x, cache, pos_win, pos_chunk, heads, chunk, rank, w)
        h = layer_norm(l.at("norm2"), x + dropout(p, y, drop))
        act = lambda y: dropout(p, gelu(y), drop)
        h = h + dropout(p, mlp(l.at("ff"), h, hidden, act=act), drop)
    return dropout(p, h, drop) @ table.T.astype(dtype) + p("out_bias", (vocab,), "zeros")
