/* ls_decode.c - incremental decoding with the Transformer-LS model: each token is processed once.
 *
 * A query needs the last rows of the window and the vectors of all earlier chunks. Each layer
 * carries, for one stream,
 *
 *     win [2s,d]           keys and values of the window, at most s rows visible;
 *                          the last rows of a full buffer move to its front
 *     x, rows [l,d]        the current chunk: normalised input, keys and values to compress
 *     cmp [(L+M)/l r,d]    vectors of the cache, then of the complete chunks of the segment
 *     next [M/l r,d]       vectors of the same chunks by the rule of the cache
 *
 * (win is absent without a window, cmp and next with rank 0). A complete chunk adds vectors of both
 * kinds. At the end of a segment `next` replaces the segment's vectors, and the oldest ones are
 * dropped; the rows of the cache are needed only through their vectors. The op gets one query in
 * token mode with exactly the rows visible to it, so neither window rule and neither treatment of
 * empty caches needs a special case. */
#include <math.h>
#include <stdlib.h>

#include "inner.h"

typedef struct layer_state {
    tp_kv win, rows, cmp, next;
    tp_tensor x;
    tp_tensor pos_win, pos_cmp; /* projected tables [s,d], [(L+M)/l r,d] */
} layer_state;

struct tp_ls_lm_decoder {
    tp_tape *T;
    const tp_ls_lm *m;
    int64_t segment;
    int64_t t;      /* earlier tokens of the current segment */
    int64_t cached; /* rows of the cache                     */
    int64_t in_win; /* rows in the window buffers            */
    layer_state layer[];
};

/* ---- pairs of carried buffers ---- */

static tp_tensor flat(tp_tape *T, tp_tensor x) /* [..,d] -> [n,d] */
{
    return tp_reshape(T, x, TP_SHAPE(-1, tp_dim(x, -1)));
}

static void write_kv(tp_tape *T, tp_kv to, int64_t row, tp_kv x)
{
    tp_write_rows(T, to.k, row, flat(T, x.k));
    tp_write_rows(T, to.v, row, flat(T, x.v));
}

/* Views [1,count,d] of rows of a pair of buffers [n,d]. */
static tp_kv read_kv(tp_tape *T, tp_kv from, int64_t start, int64_t count)
{
    const tp_shape s = TP_SHAPE(1, count, tp_dim(from.k, 1));
    return (tp_kv){ tp_reshape(T, tp_slice(T, from.k, 0, start, count), s),
                    tp_reshape(T, tp_slice(T, from.v, 0, start, count), s) };
}

/* ---- geometry ---- */

/* Number of vectors for n rows. */
static int64_t vectors(const tp_ls_lm_decoder *d, int64_t n)
{
    const tp_ls_attn_cfg *c = &d->m->cfg.ls.attn;
    return n / c->chunk * c->rank;
}

/* The largest number of visible rows of a window. */
static int64_t span(const tp_ls_attn_cfg *c)
{
    return c->segment ? 2 * (int64_t)c->window : c->window;
}

/* Starts a call. Only the decoder uses the tape. */
static void begin(tp_ls_lm_decoder *d)
{
    tp_reset(d->T);
    tp_record(d->T, false);
    tp_train(d->T, false);
}

/* ---- a new decoder ---- */

static tp_ls_lm_decoder no_memory;

static void carry_rows(tp_tape *T, tp_tensor *slot, int64_t n, tp_tensor like)
{
    tp_carry(T, slot, tp_full(T, tp_dtype_of(like), TP_SHAPE(n, tp_dim(like, -1)), 0.0));
}

static void carry_kv(tp_tape *T, tp_kv *slot, int64_t n, tp_tensor like)
{
    carry_rows(T, &slot->k, n, like);
    carry_rows(T, &slot->v, n, like);
}

/* x [1,n,d] -> [times,n,d], repeated. */
static tp_kv repeat_kv(tp_tape *T, tp_kv x, int64_t times)
{
    const tp_shape s = TP_SHAPE(times, tp_dim(x.k, 1), tp_dim(x.k, 2));
    return (tp_kv){ tp_expand(T, x.k, s), tp_expand(T, x.v, s) };
}

/* Creates the buffers of a layer, and the phantom rows of an official empty cache. These are equal,
 * so one chunk is computed and repeated. */
static void start_layer(tp_ls_lm_decoder *d, int i, tp_tensor pos_win, tp_tensor pos_cmp)
{
    tp_tape *T = d->T;
    const tp_ls_block *b = &d->m->layer[i];
    const tp_ls_attn_cfg *c = &d->m->cfg.ls.attn;
    layer_state *s = &d->layer[i];

    tp_enter(T, b->path);
    const tp_shape chunk = TP_SHAPE(1, c->chunk, d->m->cfg.dim);
    const tp_tensor zero = tp_full(T, tp_compute_dtype(T), chunk, 0.0);
    const tp_tensor x = b->pre_ln ? tp_layernorm_forward(T, &b->norm1, zero) : zero;
    tp_kv win;
    const tp_kv rows = tp_ls_attn_rows(T, &b->attn, x, &win);

    carry_rows(T, &s->x, c->chunk, x);
    carry_kv(T, &s->rows, c->chunk, rows.k);
    if (c->window > 0) {
        const tp_kv one = { tp_slice(T, win.k, 1, 0, 1), tp_slice(T, win.v, 1, 0, 1) };
        carry_kv(T, &s->win, 2 * span(c), win.k);
        tp_carry(T, &s->pos_win, tp_linear_forward(T, &b->attn.r_net, pos_win));
        if (d->cached) write_kv(T, s->win, 0, repeat_kv(T, one, d->in_win));
    }
    if (c->rank > 0) {
        const tp_kv cmp =
            tp_ls_attn_compress(T, &b->attn, x, d->m->cfg.ls.project_first ? &rows : NULL);
        carry_kv(T, &s->cmp, vectors(d, d->m->cfg.mem_len + d->segment), cmp.k);
        carry_kv(T, &s->next, vectors(d, d->segment), cmp.k);
        tp_carry(T, &s->pos_cmp, tp_linear_forward(T, &b->attn.r_net_chunk, pos_cmp));
        if (d->cached) write_kv(T, s->cmp, 0, repeat_kv(T, cmp, d->cached / c->chunk));
    }
    tp_leave(T, TP_NONE);
}

static void check_segment(tp_tape *T, const tp_ls_lm *m, int64_t segment)
{
    const tp_ls_attn_cfg *c = &m->cfg.ls.attn;

    if (!tp_params_ok(m->params))
        tp_raise(T, TP_E_STATE, "%s", tp_params_why(m->params));
    else if (segment < 1 || segment % c->chunk ||
             (c->window > 0 && segment > c->window && segment % c->window))
        tp_raise(
            T, TP_E_VALUE,
            "decoding in segments of %lld tokens is impossible: their length must be a multiple "
            "of the chunk length %d and, if longer than the window, of its %d rows",
            (long long)segment, c->chunk, c->window);
}

tp_ls_lm_decoder *tp_ls_lm_decoder_new(tp_tape *T, const tp_ls_lm *m, int64_t segment)
{
    if (!tp_want_module(T, m, "decoder")) return &no_memory;
    const tp_ls_attn_cfg *c = &m->cfg.ls.attn;
    tp_ls_lm_decoder *d = calloc(1, sizeof *d + (size_t)m->cfg.layers * sizeof *d->layer);
    tp_tensor win = TP_NONE, cmp = TP_NONE;

    if (!d) {
        tp_raise(T, TP_E_MEMORY, "decoder: out of host memory");
        return &no_memory;
    }
    *d = (tp_ls_lm_decoder){ .T = T, .m = m, .segment = segment };
    check_segment(T, m, segment);
    if (!tp_ok(T)) return d;

    begin(d);
    d->cached = c->masked ? 0 : m->cfg.mem_len;
    d->in_win = d->cached < c->window ? d->cached : c->window;
    const int64_t rows = vectors(d, m->cfg.mem_len + segment);
    tp__lm_positions(T, &win, span(c), m->inv_freq, c->clamp);
    tp__lm_positions(T, &cmp, rows, m->inv_freq, c->chunk_clamp);
    for (int i = 0; i < m->cfg.layers; i++) start_layer(d, i, win, cmp);
    tp__lm_slots_clear(T, 1, &win);
    tp__lm_slots_clear(T, 1, &cmp);
    return d;
}

/* ---- a token ---- */

static tp_kv concat_kv(tp_tape *T, tp_kv a, tp_kv b)
{
    return (tp_kv){ tp_concat(T, 1, a.k, b.k), tp_concat(T, 1, a.v, b.v) };
}

/* Number of visible rows in the current token's window, including itself; 0 without a window. */
static int64_t visible(const tp_ls_lm_decoder *d)
{
    const int64_t w = d->m->cfg.ls.attn.window;
    if (w == 0) return 0;
    const int64_t own = d->m->cfg.ls.attn.segment ? d->t % w + 1 : 1;
    const int64_t before = d->cached + d->t + 1 - own;
    const int64_t most = d->m->cfg.ls.attn.segment ? w : w - 1;
    return (before < most ? before : most) + own;
}

/* Adds the vectors of the completed chunk, by both rules. */
static void complete_chunk(tp_ls_lm_decoder *d, const tp_ls_attn_m *m, const layer_state *s)
{
    tp_tape *T = d->T;
    const int64_t l = m->cfg.attn.chunk, at = vectors(d, d->t);
    const tp_tensor x = tp_reshape(T, s->x, TP_SHAPE(1, l, tp_dim(s->x, 1)));
    const tp_kv rows = read_kv(T, s->rows, 0, l);
    const tp_kv now = tp_ls_attn_compress(T, m, x, &rows);

    write_kv(T, s->cmp, vectors(d, d->cached) + at, now);
    write_kv(T, s->next, at, m->cfg.project_first ? now : tp_ls_attn_compress(T, m, x, NULL));
}

/* Normalised x [1,1,d] -> attention output [1,1,d]. */
static tp_tensor attend(tp_ls_lm_decoder *d, const tp_ls_attn_m *m, const layer_state *s,
                        tp_tensor x)
{
    tp_tape *T = d->T;
    const int64_t l = m->cfg.attn.chunk, shown = visible(d);
    tp_kv win;
    const tp_kv rows = tp_ls_attn_rows(T, m, x, &win);

    if (m->cfg.attn.window > 0) write_kv(T, s->win, d->in_win, win);
    write_kv(T, s->rows, d->t % l, rows);
    tp_write_rows(T, s->x, d->t % l, flat(T, x));
    if (m->cfg.attn.rank > 0 && (d->t + 1) % l == 0) complete_chunk(d, m, s);

    /* A chunk of one token completes with its own query: the op then expects its vectors, though
     * they are not visible to the query. */
    const int64_t nc = vectors(d, d->cached) + vectors(d, d->t) + vectors(d, 1);
    const tp_kv none = { TP_NONE, TP_NONE };
    const tp_kv near = shown ? read_kv(T, s->win, d->in_win + 1 - shown, shown) : none;
    const tp_kv far = nc ? read_kv(T, s->cmp, 0, nc) : none;
    const tp_ls_attn_cfg op = { .chunk = m->cfg.attn.chunk,
                                .rank = m->cfg.attn.rank,
                                .window = (int)span(&m->cfg.attn),
                                .masked = true };
    const tp_ls_in in = {
        .q = tp_linear_forward(T, &m->proj_query, x),
        .k_win = near.k,
        .v_win = near.v,
        .k_cmp = far.k,
        .v_cmp = far.v,
        .pos_win = s->pos_win,
        .pos_cmp = nc ? s->pos_cmp : TP_NONE,
        .cache = d->cached + d->t,
        .valid = d->cached + d->t,
    };
    return tp_linear_forward(T, &m->proj_out, tp_ls_attn_attend(T, m, in, op));
}

static tp_tensor run_layer(tp_ls_lm_decoder *d, int i, tp_tensor h)
{
    tp_tape *T = d->T;
    const tp_ls_block *b = &d->m->layer[i];
    tp_enter(T, b->path);
    const tp_tensor a = b->pre_ln ? tp_layernorm_forward(T, &b->norm1, h) : h;
    const tp_tensor y = attend(d, &b->attn, &d->layer[i], a);
    return tp_leave(T, tp__ls_block_finish(T, b, tp_add(T, y, a)));
}

/* Moves the rows that the next window needs to the front of the full buffers. */
static void slide_windows(tp_ls_lm_decoder *d)
{
    const int64_t s = span(&d->m->cfg.ls.attn), kept = s - 1;
    if (s == 0 || d->in_win < 2 * s) return;
    for (int i = 0; i < d->m->cfg.layers; i++) {
        const tp_kv win = d->layer[i].win;
        write_kv(d->T, win, 0, read_kv(d->T, win, d->in_win - kept, kept));
    }
    d->in_win = kept;
}

/* Moves the completed segment into the cache, as vectors by the rule of the cache. */
static void complete_segment(tp_ls_lm_decoder *d)
{
    const int64_t mem = d->m->cfg.mem_len, all = d->cached + d->segment;
    const int64_t fresh = d->segment < mem ? d->segment : mem;
    const int64_t cached = all < mem ? all : mem, kept = cached - fresh;

    for (int i = 0; d->m->cfg.ls.attn.rank > 0 && i < d->m->cfg.layers; i++) {
        const layer_state *s = &d->layer[i];
        const tp_kv old = read_kv(d->T, s->cmp, vectors(d, d->cached - kept), vectors(d, kept));
        const tp_kv next =
            read_kv(d->T, s->next, vectors(d, d->segment - fresh), vectors(d, fresh));
        write_kv(d->T, s->cmp, 0, concat_kv(d->T, old, next));
    }
    d->cached = cached;
    d->t = 0;
}

bool tp_ls_lm_decode(tp_ls_lm_decoder *d, int64_t token, float *logits)
{
    tp_tape *T = d ? d->T : NULL;
    if (!T || !tp_ok(T)) return false;
    if (token < 0 || token >= d->m->cfg.vocab) { /* the embedding would return NaN on a GPU */
        tp_raise(T, TP_E_VALUE, "token %lld is not in the vocabulary of %lld", (long long)token,
                 (long long)d->m->cfg.vocab);
        return false;
    }
    begin(d);
    slide_windows(d);
    tp_enter(T, d->m->path);
    const tp_tensor id = tp_from(T, TP_I64, TP_SHAPE(1, 1), &token);
    tp_tensor h = tp_embedding(T, d->m->in_emb, id, sqrt((double)d->m->cfg.dim));
    h = tp_cast(T, h, tp_compute_dtype(T));
    for (int i = 0; i < d->m->cfg.layers; i++) h = run_layer(d, i, h);
    if (logits) {
        const tp_tensor y = tp_linear(T, h, d->m->in_emb, d->m->out_bias, TP_ACT_NONE);
        tp_read(T, tp_cast(T, y, TP_F32), logits, (size_t)tp_numel(y) * sizeof *logits);
    }
    d->in_win++;
    if (++d->t == d->segment) complete_segment(d);
    tp_leave(T, TP_NONE);
    return tp_ok(T);
}

static void drop_kv(tp_tape *T, tp_kv *slot)
{
    tp__lm_slots_clear(T, 1, &slot->k);
    tp__lm_slots_clear(T, 1, &slot->v);
}

void tp_ls_lm_decoder_free(tp_ls_lm_decoder *d)
{
    if (!d || d == &no_memory) return;
    for (int i = 0; i < d->m->cfg.layers; i++) {
        layer_state *s = &d->layer[i];
        drop_kv(d->T, &s->win);
        drop_kv(d->T, &s->rows);
        drop_kv(d->T, &s->cmp);
        drop_kv(d->T, &s->next);
        tp__lm_slots_clear(d->T, 1, &s->x);
        tp__lm_slots_clear(d->T, 1, &s->pos_win);
        tp__lm_slots_clear(d->T, 1, &s->pos_cmp);
    }
    free(d);
}
