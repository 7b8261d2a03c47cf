/* mha.c - multi-head attention: four projections around tp_attention; heads stay packed in the last
 * axis, so nothing is permuted. Rotary positions and head norms come between.
 *
 * Decoding writes new keys and values, already rotated, into carried buffers, whose filled part the
 * op reads in place. */
#include <tapegrad/nn.h>
#include <tapegrad/tape.h>
#include <tapegrad/tensor.h>

void tp_mha_init(tp_params *P, tp_mha_m *m, const char *name, int64_t dim, bool bias,
                 tp_mha_cfg cfg)
{
    if (!tp_params_want_module(P, m, "mha")) return;
    const tp_init one = { TP_INIT_CONST, 1.0, 0.0 };
    const int64_t size = cfg.attn.heads > 0 ? dim / cfg.attn.heads : 0;
    const int64_t kv = cfg.attn.kv_heads > 0 ? cfg.attn.kv_heads * size : dim;
    const int64_t memory = cfg.memory > 0 ? cfg.memory : dim;
    m->path = tp_push(P, name);
    if (cfg.attn.heads < 1 || dim % cfg.attn.heads)
        tp_params_raise(P, TP_E_VALUE, "mha: a width of %lld does not divide into %d heads",
                        (long long)dim, cfg.attn.heads);
    tp_linear_init(P, &m->q, "q_proj", dim, dim, bias);
    tp_linear_init(P, &m->k, "k_proj", memory, kv, bias);
    tp_linear_init(P, &m->v, "v_proj", memory, kv, bias);
    tp_linear_init(P, &m->out, "out_proj", dim, dim, bias);
    m->q_norm = m->k_norm = TP_NONE;
    if (cfg.qk_norm) m->q_norm = tp_param(P, "q_norm.weight", TP_SHAPE(size), one, 0);
    if (cfg.qk_norm) m->k_norm = tp_param(P, "k_norm.weight", TP_SHAPE(size), one, 0);
    m->cfg = cfg;
    tp_pop(P);
}

static int kv_heads(const tp_mha_m *m)
{
    return m->cfg.attn.kv_heads > 0 ? m->cfg.attn.kv_heads : m->cfg.attn.heads;
}

/* Divides each head of x [B,N,heads*D] by its RMS. */
static tp_tensor norm_heads(tp_tape *T, tp_tensor x, tp_tensor weight, int heads)
{
    if (!tp_given(weight) || !tp_ok(T)) return x;
    const tp_shape s = tp_shape_of(x);
    x = tp_reshape(T, x, TP_SHAPE(s.dim[0], s.dim[1], heads, s.dim[2] / heads));
    return tp_reshape(T, tp_rmsnorm(T, x, weight, 1e-6), s);
}

static tp_tensor rotate(tp_tape *T, const tp_mha_m *m, tp_tensor x, int heads, int64_t offset)
{
    if (!m->cfg.rotary) return x;
    tp_rotary_cfg cfg = m->cfg.position;
    cfg.heads = heads;
    cfg.offset = offset;
    return tp_rotary(T, x, TP_NONE, cfg);
}

static tp_tensor queries(tp_tape *T, const tp_mha_m *m, tp_tensor x)
{
    return norm_heads(T, tp_linear_forward(T, &m->q, x), m->q_norm, m->cfg.attn.heads);
}

static tp_tensor keys(tp_tape *T, const tp_mha_m *m, tp_tensor x)
{
    return norm_heads(T, tp_linear_forward(T, &m->k, x), m->k_norm, kv_heads(m));
}

tp_tensor tp_mha_forward(tp_tape *T, const tp_mha_m *m, tp_tensor x, tp_tensor mask)
{
    if (!tp_want_module(T, m, "mha")) return TP_NONE;
    tp_enter(T, m->path);
    const tp_tensor q = rotate(T, m, queries(T, m, x), m->cfg.attn.heads, 0);
    const tp_tensor k = rotate(T, m, keys(T, m, x), kv_heads(m), 0);
    const tp_tensor v = tp_linear_forward(T, &m->v, x);
    const tp_tensor y = tp_attention(T, q, k, v, mask, TP_NONE, m->cfg.attn);
    return tp_leave(T, tp_linear_forward(T, &m->out, y));
}

tp_tensor tp_mha_cross(tp_tape *T, const tp_mha_m *m, tp_tensor x, tp_tensor memory, tp_tensor mask)
{
    if (!tp_want_module(T, m, "mha")) return TP_NONE;
    tp_enter(T, m->path);
    const tp_tensor q = queries(T, m, x), k = keys(T, m, memory);
    const tp_tensor v = tp_linear_forward(T, &m->v, memory);
    const tp_tensor y = tp_attention(T, q, k, v, mask, TP_NONE, m->cfg.attn);
    return tp_leave(T, tp_linear_forward(T, &m->out, y));
}

/* ---- decoding ---- */

void tp_kv_cache_free(tp_tape *T, tp_kv_cache *c)
{
    if (!c) return;
    tp_carry(T, &c->k, TP_NONE);
    tp_carry(T, &c->v, TP_NONE);
    c->filled = c->texts = 0;
    c->of = TP_NONE;
}

/* Decoding writes into the cache, which backward cannot follow. */
static bool may_decode(tp_tape *T)
{
    const bool records = tp_record(T, false);
    tp_record(T, records);
    if (records)
        tp_raise_here(T, TP_E_STATE,
                      "mha: decoding changes its cache and cannot be recorded; call tp_record(T, "
                      "false) before");
    return tp_ok(T);
}

/* The texts of a buffer [B*room,W] that an index names. */
static void choose_texts(tp_tape *T, tp_tensor *of, const tp_kv_cache *c, tp_tensor index)
{
    const int64_t width = tp_dim(*of, 1);
    const tp_tensor all = tp_reshape(T, *of, TP_SHAPE(c->texts, c->room * width));
    const tp_tensor some = tp_index_select(T, all, 0, index);
    tp_carry(T, of, tp_reshape(T, some, TP_SHAPE(-1, width)));
}

void tp_kv_cache_reorder(tp_tape *T, tp_kv_cache *c, tp_tensor index)
{
    if (!tp_want(T, c, "kv_cache_reorder", "a cache")) return;
    if (!may_decode(T)) return;
    if (!tp_given(c->k) || c->texts < 1 || c->room < 1) {
        tp_raise_here(T, TP_E_STATE, "kv_cache_reorder: the cache holds nothing yet; decode first");
        return;
    }
    choose_texts(T, &c->k, c, index);
    choose_texts(T, &c->v, c, index);
    if (tp_ok(T)) c->texts = tp_dim(index, 0);
}

/* Prepares the cache for n more tokens per text; k sets width and dtype. */
static bool reserve(tp_tape *T, tp_kv_cache *c, int64_t texts, int64_t n, tp_tensor k)
{
    if (!tp_ok(T)) return false;
    if (c->filled < 0 || c->room < 0 || n > c->room - c->filled)
        tp_raise_here(
            T, TP_E_SHAPE,
            "mha: the cache has room for %lld tokens and %lld are in it; %lld more do not fit",
            (long long)c->room, (long long)c->filled, (long long)n);
    else if (!tp_given(c->k)) {
        const tp_shape s = TP_SHAPE(texts * c->room, tp_dim(k, 2));
        tp_carry(T, &c->k, tp_full(T, tp_dtype_of(k), s, 0.0));
        tp_carry(T, &c->v, tp_full(T, tp_dtype_of(k), s, 0.0));
        c->texts = texts;
    } else if (c->texts != texts || tp_dim(c->k, 0) != texts * c->room)
        tp_raise_here(
            T, TP_E_SHAPE,
            "mha: the cache is for %lld texts and has %lld rows, not %lld texts of %lld tokens; "
            "tp_kv_cache_free empties it",
            (long long)c->texts, (long long)tp_dim(c->k, 0), (long long)texts, (long long)c->room);
    return tp_ok(T);
}

/* Appends x [B,n,W] to each text's tokens in the buffer [B*room,W]. */
static void append(tp_tape *T, const tp_kv_cache *c, tp_tensor to, tp_tensor x)
{
    const tp_shape rows = TP_SHAPE(tp_dim(x, 1), tp_dim(x, 2));
    for (int64_t b = 0; tp_ok(T) && b < tp_dim(x, 0); b++)
        tp_write_rows(T, to, b * c->room + c->filled, tp_reshape(T, tp_slice(T, x, 0, b, 1), rows));
}

/* Attends from q to the filled part. */
static tp_tensor attend_cache(tp_tape *T, const tp_mha_m *m, const tp_kv_cache *c, tp_tensor q,
                              tp_tensor mask)
{
    if (!tp_ok(T)) return TP_NONE;
    tp_attn_cfg cfg = m->cfg.attn;
    const tp_shape s = TP_SHAPE(tp_dim(q, 0), c->room, tp_dim(c->k, 1));
    cfg.keys = c->filled;
    const tp_tensor k = tp_reshape(T, c->k, s), v = tp_reshape(T, c->v, s);
    return tp_attention(T, q, k, v, mask, TP_NONE, cfg);
}

tp_tensor tp_mha_decode(tp_tape *T, const tp_mha_m *m, tp_kv_cache *cache, tp_tensor x,
                        tp_tensor mask)
{
    if (!tp_want_module(T, m, "mha") || !tp_want(T, cache, "mha", "a cache")) return TP_NONE;
    tp_enter(T, m->path);
    if (!may_decode(T)) return tp_leave(T, TP_NONE);
    if (!m->cfg.attn.causal)
        return tp_leave(T, tp_raise_here(T, TP_E_STATE,
                                         "mha: only a causal module can decode; set attn.causal"));
    const int64_t before = cache->filled;
    const tp_tensor q = rotate(T, m, queries(T, m, x), m->cfg.attn.heads, before);
    const tp_tensor k = rotate(T, m, keys(T, m, x), kv_heads(m), before);
    const tp_tensor v = tp_linear_forward(T, &m->v, x);
    if (!tp_ok(T) || !reserve(T, cache, tp_dim(k, 0), tp_dim(k, 1), k)) return tp_leave(T, TP_NONE);
    append(T, cache, cache->k, k);
    append(T, cache, cache->v, v);
    if (tp_ok(T)) cache->filled += tp_dim(k, 1);
    const tp_tensor y = attend_cache(T, m, cache, q, mask);
    return tp_leave(T, tp_linear_forward(T, &m->out, y));
}

/* Must the cache be refilled from memory? */
static bool is_new(const tp_kv_cache *c, tp_tensor memory)
{
    return c->filled == 0 ||
           (tp_given(memory) && (memory.node != c->of.node || memory.gen != c->of.gen));
}

tp_tensor tp_mha_cross_decode(tp_tape *T, const tp_mha_m *m, tp_kv_cache *cache, tp_tensor x,
                              tp_tensor memory, tp_tensor mask)
{
    if (!tp_want_module(T, m, "mha") || !tp_want(T, cache, "mha", "a cache")) return TP_NONE;
    tp_enter(T, m->path);
    if (!may_decode(T)) return tp_leave(T, TP_NONE);
    if (is_new(cache, memory)) {
        const tp_tensor k = keys(T, m, memory), v = tp_linear_forward(T, &m->v, memory);
        if (!tp_ok(T)) return tp_leave(T, TP_NONE);
        const tp_shape rows = TP_SHAPE(-1, tp_dim(k, 2));
        cache->filled = 0; /* until both are set */
        tp_carry(T, &cache->k, tp_reshape(T, k, rows));
        tp_carry(T, &cache->v, tp_reshape(T, v, rows));
        if (!tp_ok(T)) return tp_leave(T, TP_NONE);
        cache->filled = cache->room = tp_dim(k, 1);
        cache->texts = tp_dim(k, 0);
        cache->of = memory;
    }
    const tp_tensor q = queries(T, m, x);
    if (tp_ok(T) && tp_dim(q, 0) != cache->texts)
        tp_raise_here(T, TP_E_SHAPE, "mha: the memory has %lld texts, x has %lld",
                      (long long)cache->texts, (long long)tp_dim(q, 0));
    return tp_leave(T, tp_linear_forward(T, &m->out, attend_cache(T, m, cache, q, mask)));
}
