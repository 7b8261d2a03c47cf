/* gpt_ls.c - long-short attention in the layers of GPT-2 and Llama (Zhu et al. 2021; nn.h): a token
 * sees the last rows of a window and the vectors of all chunks before its own, under one softmax.
 *
 *     tokens        0 ........................ t
 *     vectors       [c0][c1][c2]                    rank for each whole chunk
 *     window                     |-- window --|
 *
 * A forward pass and a call of a decoder are the same: n tokens after `before` earlier ones. The op
 * takes them at once if they begin a chunk; otherwise the rest of the chunk goes one by one. A
 * decoder keeps keys and values of all tokens, the vectors, and the rows of the unfinished
 * chunk. */
#include <stdlib.h>
#include <string.h>

#include "gpt_inner.h"

static tp_kv rows_of(tp_tape *T, tp_kv x, int64_t first, int64_t n)
{
    return (tp_kv){ tp_slice(T, x.k, 1, first, n), tp_slice(T, x.v, 1, first, n) };
}

static tp_kv no_rows(void)
{
    return (tp_kv){ TP_NONE, TP_NONE };
}

/* ---- tables of positions ---- */

static tp_tensor table(tp_params *P, const char *name, int64_t rows, int64_t dim, tp_dtype dt)
{
    const int64_t n = dim / 2;
    double *w = malloc((size_t)(n + rows * dim + 1) * sizeof *w);
    if (!w) {
        tp_params_raise(P, TP_E_MEMORY, "%s: out of host memory", name);
        return TP_NONE;
    }
    double *full = w + n;
    float *half = (float *)full; /* never ahead of what is read */
    tp_frequencies(n, w);
    tp_sinusoid(rows, n, w, 0, full);
    for (int64_t i = 0; i < rows * dim && dt == TP_F32; i++) {
        const float x = (float)full[i];
        memcpy(half + i, &x, sizeof x);
    }
    const tp_tensor buffer = tp_buffer(P, name, dt, TP_SHAPE(rows, dim), full);
    free(w);
    return buffer;
}

void tp__gpt_ls_tables(tp_params *P, tp_gpt *m)
{
    const tp_gpt_cfg *c = &m->cfg;
    const tp_dtype dt = tp_dtype_of(m->tokens) == TP_F64 ? TP_F64 : TP_F32;
    if (!tp_params_ok(P)) return;
    m->tables.near = table(P, "ls_window.positions", c->ls_window, c->dim, dt);
    m->tables.far =
        table(P, "ls_chunks.positions", c->positions / c->ls_chunk * c->ls_rank + 1, c->dim, dt);
}

void tp__gpt_ls_init(tp_params *P, tp_ls_attn_m *m, const char *name, const tp_gpt_cfg *c,
                     bool bias)
{
    tp_ls_attn_init(P, m, name, c->dim, bias,
                    (tp_ls_cfg){ .attn = { .heads = c->heads,
                                           .chunk = c->ls_chunk,
                                           .rank = c->ls_rank,
                                           .window = c->ls_window,
                                           .dropout = c->att_dropout,
                                           .masked = true } });
}

/* ---- the op ---- */

/* The tables as the layer's attention takes them. */
static tp_gpt_tables projected(tp_tape *T, const tp_ls_attn_m *m, const tp_gpt_tables *t)
{
    const tp_dtype dt = tp_compute_dtype(T);
    return (tp_gpt_tables){
        .near = tp_linear_forward(T, &m->r_net, tp_cast(T, t->near, dt)),
        .far = tp_linear_forward(T, &m->r_net_chunk, tp_cast(T, t->far, dt)),
    };
}

/* Queries of x after `before` tokens; near and far: what they may see; t: projected. */
static tp_tensor attend(tp_tape *T, const tp_ls_attn_m *m, const tp_gpt_tables *t, tp_tensor x,
                        int64_t before, tp_kv near, tp_kv far)
{
    tp_ls_attn_cfg op = m->cfg.attn;
    const tp_ls_in in = {
        .q = tp_linear_forward(T, &m->proj_query, x),
        .k_win = near.k,
        .v_win = near.v,
        .k_cmp = far.k,
        .v_cmp = far.v,
        .pos_win = t->near,
        .pos_cmp = tp_given(far.k) ? t->far : TP_NONE,
        .cache = before,
        .valid = before,
    };
    return tp_linear_forward(T, &m->proj_out, tp_ls_attn_attend(T, m, in, op));
}

tp_tensor tp__gpt_ls_forward(tp_tape *T, const tp_ls_attn_m *m, const tp_gpt_tables *t, tp_tensor x)
{
    tp_enter(T, m->path);
    const int64_t l = m->cfg.attn.chunk, whole = tp_dim(x, 1) / l * l;
    tp_kv window, far = no_rows();
    const tp_kv rows = tp_ls_attn_rows(T, m, x, &window);
    if (whole > 0) {
        const tp_kv own = rows_of(T, rows, 0, whole);
        far = tp_ls_attn_compress(T, m, tp_slice(T, x, 1, 0, whole), &own);
    }
    const tp_gpt_tables own = projected(T, m, t);
    return tp_leave(T, attend(T, m, &own, x, 0, window, far));
}

/* ---- decoding ---- */

/* A carried buffer [B*room,d]. */
static void carry(tp_tape *T, tp_tensor *slot, int64_t texts, int64_t room, tp_tensor like)
{
    if (tp_given(*slot)) return;
    const tp_shape s = TP_SHAPE(texts * room, tp_dim(like, 2));
    tp_carry(T, slot, tp_full(T, tp_dtype_of(like), s, 0.0));
}

/* Writes x [B,n,d] to each text's rows from `at` on. */
static void put(tp_tape *T, tp_tensor to, int64_t room, int64_t at, tp_tensor x)
{
    const tp_shape rows = TP_SHAPE(tp_dim(x, 1), tp_dim(x, 2));
    for (int64_t b = 0; tp_ok(T) && b < tp_dim(x, 0); b++)
        tp_write_rows(T, to, b * room + at, tp_reshape(T, tp_slice(T, x, 0, b, 1), rows));
}

/* Rows [B,n,d] of each text. */
static tp_tensor got(tp_tape *T, tp_tensor from, int64_t texts, int64_t room, int64_t at, int64_t n)
{
    const tp_tensor all = tp_reshape(T, from, TP_SHAPE(texts, room, tp_dim(from, 1)));
    return tp_slice(T, all, 1, at, n);
}

static tp_kv got_kv(tp_tape *T, tp_kv from, int64_t texts, int64_t room, int64_t at, int64_t n)
{
    return (tp_kv){ got(T, from.k, texts, room, at, n), got(T, from.v, texts, room, at, n) };
}

/* Decoding of some tokens: their layer, its cache, and the number of texts and of tokens before. */
typedef struct step {
    const tp_ls_attn_m *m;
    tp_gpt_tables t; /* projected */
    tp_gpt_ls_cache *c;
    int64_t texts, room, before;
} step;

static int64_t vectors(const step *s, int64_t tokens)
{
    return tokens / s->m->cfg.attn.chunk * s->m->cfg.attn.rank;
}

/* Rows of the buffers of vectors, of which the last is never used. */
static int64_t most(const step *s)
{
    return vectors(s, s->room) + 1;
}

/* Keeps the rows of n tokens: of whole chunks as vectors, of the last, unfinished one as they are.
 * The tokens begin a chunk, or there is one. */
static void keep(tp_tape *T, const step *s, tp_tensor x, tp_kv rows, tp_kv window)
{
    const int64_t l = s->m->cfg.attn.chunk, n = tp_dim(x, 1), at = s->before % l;
    const int64_t whole = at == 0 ? n / l * l : 0;
    tp_gpt_ls_cache *c = s->c;
    put(T, c->win.k, s->room, s->before, window.k);
    put(T, c->win.v, s->room, s->before, window.v);
    tp_kv done = no_rows();
    if (whole > 0) {
        const tp_kv own = rows_of(T, rows, 0, whole);
        done = tp_ls_attn_compress(T, s->m, tp_slice(T, x, 1, 0, whole), &own);
    }
    if (n > whole) {
        const tp_kv rest = rows_of(T, rows, whole, n - whole);
        put(T, c->chunk, l, at, tp_slice(T, x, 1, whole, n - whole));
        put(T, c->rows.k, l, at, rest.k);
        put(T, c->rows.v, l, at, rest.v);
    }
    if (at > 0 && at + n == l) {
        const tp_kv own = got_kv(T, c->rows, s->texts, l, 0, l);
        done = tp_ls_attn_compress(T, s->m, got(T, c->chunk, s->texts, l, 0, l), &own);
    }
    if (!tp_given(done.k)) return;
    put(T, c->cmp.k, most(s), vectors(s, s->before), done.k);
    put(T, c->cmp.v, most(s), vectors(s, s->before), done.v);
}

/* Tokens x [B,n,d] that begin a chunk, or one token. */
static tp_tensor advance(tp_tape *T, step *s, tp_tensor x)
{
    const tp_ls_attn_m *m = s->m;
    const int64_t n = tp_dim(x, 1), w = m->cfg.attn.window;
    const int64_t old = s->before < w ? s->before : w; /* rows before x that are in a window */
    tp_kv window;
    const tp_kv rows = tp_ls_attn_rows(T, m, x, &window);
    carry(T, &s->c->win.k, s->texts, s->room, window.k);
    carry(T, &s->c->win.v, s->texts, s->room, window.v);
    carry(T, &s->c->cmp.k, s->texts, most(s), rows.k);
    carry(T, &s->c->cmp.v, s->texts, most(s), rows.v);
    carry(T, &s->c->chunk, s->texts, m->cfg.attn.chunk, x);
    carry(T, &s->c->rows.k, s->texts, m->cfg.attn.chunk, rows.k);
    carry(T, &s->c->rows.v, s->texts, m->cfg.attn.chunk, rows.v);
    if (!tp_ok(T)) return TP_NONE;
    keep(T, s, x, rows, window);
    /* The op counts the vectors of chunks within x, though a single token's is not visible to
     * it. */
    const int64_t far = vectors(s, s->before) + vectors(s, n);
    const tp_kv near = got_kv(T, s->c->win, s->texts, s->room, s->before - old, old + n);
    const tp_kv cmp = far ? got_kv(T, s->c->cmp, s->texts, most(s), 0, far) : no_rows();
    const tp_tensor y = attend(T, m, &s->t, x, s->before, near, cmp);
    s->before += n;
    return y;
}

/* False, with T failed, if the cache cannot take n more tokens of that many texts. */
static bool may_decode(tp_tape *T, const step *s, int64_t n)
{
    const bool records = tp_record(T, false);
    const tp_tensor old = s->c->win.k;
    tp_record(T, records);
    if (!tp_ok(T)) return false;
    if (records)
        tp_raise_here(T, TP_E_STATE,
                      "gpt: decoding changes its cache and cannot be recorded; call tp_record(T, "
                      "false) before");
    else if (n > s->room - s->before)
        tp_raise_here(T, TP_E_SHAPE,
                      "gpt: the cache has room for %lld tokens and %lld are in it; %lld more do "
                      "not fit",
                      (long long)s->room, (long long)s->before, (long long)n);
    else if (tp_given(old) && tp_dim(old, 0) != s->texts * s->room)
        tp_raise_here(T, TP_E_SHAPE,
                      "gpt: the cache has %lld rows, not %lld texts of %lld tokens; "
                      "tp_gpt_cache_free empties it",
                      (long long)tp_dim(old, 0), (long long)s->texts, (long long)s->room);
    return tp_ok(T);
}

tp_tensor tp__gpt_ls_decode(tp_tape *T, const tp_ls_attn_m *m, const tp_gpt_tables *t,
                            tp_gpt_ls_cache *c, int64_t room, int64_t before, tp_tensor x)
{
    tp_enter(T, m->path);
    step s = { .m = m, .c = c, .texts = tp_dim(x, 0), .room = room, .before = before };
    const int64_t n = tp_dim(x, 1), l = m->cfg.attn.chunk;
    tp_tensor y = TP_NONE;
    if (!may_decode(T, &s, n)) return tp_leave(T, TP_NONE);
    if (before == 0) {
        const tp_gpt_tables own = projected(T, m, t);
        tp_carry(T, &c->near, own.near);
        tp_carry(T, &c->far, own.far);
    }
    s.t = (tp_gpt_tables){ c->near, c->far };
    for (int64_t at = 0; at < n && tp_ok(T);) {
        const int64_t some = s.before % l ? 1 : n - at;
        const tp_tensor part = advance(T, &s, some == n ? x : tp_slice(T, x, 1, at, some));
        y = at ? tp_concat(T, 1, y, part) : part;
        at += some;
    }
    return tp_leave(T, y);
}

void tp__gpt_ls_free(tp_tape *T, tp_gpt_ls_cache *c)
{
    tp_tensor *const slot[] = { &c->win.k,  &c->win.v,  &c->cmp.k, &c->cmp.v, &c->chunk,
                                &c->rows.k, &c->rows.v, &c->near,  &c->far };
    for (size_t i = 0; i < sizeof slot / sizeof *slot; i++)
        if (tp_given(*slot[i])) tp_carry(T, slot[i], TP_NONE);
}
