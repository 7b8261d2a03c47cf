/* longformer.c - attention in windows with global tokens (Beltagy et al. 2020, section 3).
 *
 *     local i    softmax(q_i [k_global, k_j of the local j with |i - j| <= W/2])
 *     global i   softmax(q'_i k'_j of all real j), with projections of their own
 *
 * The sequence is a map of height 1 in chunks of W/2 tokens with exact edges. Keys of global tokens
 * are low keys. In the map they are masked, so their result rows are zero; the global queries'
 * results are added there. Packed documents are maps of their own length.
 *
 * Keys and values of global queries take a third of the layer's per-token products, though few
 * queries read them. Packed documents fold their projections into queries and results: for head h
 * of K, a, V, c
 *
 *     q'_h (K_h x_j + a_h) = (q'_h [K_h a_h]) (x_j, 1)
 *     sum_j p_j (V_h x_j + c_h) = [V_h c_h] sum_j p_j (x_j, 1)
 *
 * so the tokens themselves, with a 1, are keys and values of all heads. This pays while a text has
 * at most as many global tokens as a head is wide. On a GPU, which pads, per-token products beat
 * attention with such wide heads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

void tp__longformer_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_longformer_m *m = module;
    const tp_roberta_cfg *c = cfg;
    const int64_t dim = c->dim;
    *m = (tp_longformer_m){ .heads = c->heads,
                            .window = c->window,
                            .dropout = c->attention_dropout };
    m->path = tp_push(P, name);
    tp_linear_init(P, &m->query, "query", dim, dim, true);
    tp_linear_init(P, &m->key, "key", dim, dim, true);
    tp_linear_init(P, &m->value, "value", dim, dim, true);
    tp_linear_init(P, &m->query_global, "query_global", dim, dim, true);
    tp_linear_init(P, &m->key_global, "key_global", dim, dim, true);
    tp_linear_init(P, &m->value_global, "value_global", dim, dim, true);
    tp_pop(P);
}

/* ---- the global tokens ---- */

/* Concatenated texts: text b has rows at(b) to at(b + 1) - 1, from offsets or n tokens each. */
typedef struct rows_of {
    const int32_t *offset; /* or NULL */
    int64_t texts, n;
} rows_of;

static int64_t at(const rows_of *r, int64_t b)
{
    return r->offset ? r->offset[b] : b * r->n;
}

/* Most global tokens in any text. */
static int64_t most_global(const uint8_t *code, const rows_of *r)
{
    int64_t most = 0;
    for (int64_t b = 0; b < r->texts; b++) {
        int64_t count = 0;
        for (int64_t i = at(r, b); i < at(r, b + 1); i++) count += code[i] == 2;
        most = count > most ? count : most;
    }
    return most;
}

static tp_roberta_global global_tokens(tp_tape *T, const uint8_t *code, const rows_of *r)
{
    tp_roberta_global g = { TP_NONE, TP_NONE, TP_NONE };
    const int64_t G = most_global(code, r), B = r->texts, M = at(r, B);
    int32_t *rows = calloc((size_t)(B * G) + 1, sizeof *rows);
    uint8_t *used = calloc((size_t)(B * G + M) + 1, 1), *local = used ? used + B * G : NULL;
    if (!rows || !used) {
        g.local = tp_raise(T, TP_E_MEMORY, "global tokens: out of memory");
    } else {
        for (int64_t b = 0; b < B; b++) {
            int64_t k = b * G;
            for (int64_t i = at(r, b); i < at(r, b + 1); i++) {
                local[i] = code[i] == 1;
                if (code[i] != 2) continue;
                rows[k] = (int32_t)i;
                used[k++] = 1;
            }
            for (; k < (b + 1) * G; k++) rows[k] = (int32_t)at(r, b);
        }
        g.local = tp_from(T, TP_U8, r->offset ? TP_SHAPE(M) : TP_SHAPE(B, r->n), local);
        if (G > 0) g.rows = tp_from(T, TP_I32, TP_SHAPE(B * G), rows);
        if (G > 0) g.used = tp_from(T, TP_U8, TP_SHAPE(B, G), used);
    }
    free(rows);
    free(used);
    return g;
}

tp_roberta_global tp_roberta_global_tokens(tp_tape *T, const uint8_t *code, int64_t B, int64_t n)
{
    if (!code) {
        tp_raise_here(T, TP_E_STATE, "roberta_global_tokens: NULL was given in place of an array");
        return (tp_roberta_global){ 0 };
    }
    return global_tokens(T, code, &(rows_of){ NULL, B, n });
}

tp_roberta_global tp_roberta_global_packed(tp_tape *T, const uint8_t *code, const int32_t *offset,
                                           int64_t documents)
{
    return global_tokens(T, code, &(rows_of){ offset, documents, 0 });
}

/* ---- forward ---- */

static bool is_packed(const tp_longformer_in *a)
{
    return tp_given(a->of.offset);
}

static tp_tensor flat(tp_tape *T, tp_tensor x)
{
    return tp_reshape(T, x, TP_SHAPE(-1, tp_dim(x, -1)));
}

/* The rows of the global tokens -> [B,G,d]. */
static tp_tensor pick(tp_tape *T, tp_tensor x, const tp_roberta_global *g)
{
    const int64_t B = tp_dim(g->used, 0), G = tp_dim(g->used, 1), d = tp_dim(x, -1);
    return tp_reshape(T, tp_index_select(T, flat(T, x), 0, g->rows), TP_SHAPE(B, G, d));
}

/* 1 where both heads are equal; multiplies [...,heads,heads,head width]. */
static tp_tensor same_head(tp_tape *T, int64_t heads, tp_dtype dt)
{
    const tp_tensor head = tp_arange(T, TP_I32, 0.0, (double)heads, 1.0);
    return tp_unsqueeze(T, tp_one_hot(T, head, heads, dt), -1);
}

/* Global queries q [B,G,d] over the packed rows x [M,d]: each head of a query becomes a query [d +
 * 1]. */
static tp_tensor folded(tp_tape *T, const tp_longformer_m *m, tp_tensor q, tp_tensor x,
                        const tp_packed *of)
{
    const int64_t B = tp_dim(q, 0), G = tp_dim(q, 1), d = tp_dim(q, 2), H = m->heads;
    const tp_linear_m *key = &m->key_global, *value = &m->value_global;
    const tp_tensor same = same_head(T, H, tp_dtype_of(q));
    tp_tensor u = tp_mul(T, tp_reshape(T, q, TP_SHAPE(B * G, 1, H, d / H)), same);
    u = tp_reshape(T, u, TP_SHAPE(B * G * H, d));
    tp_enter(T, key->path);
    const tp_tensor of_one = tp_matmul(T, u, tp_unsqueeze(T, key->bias, -1));
    u = tp_leave(T, tp_concat(T, 1, tp_linear_transposed(T, key, u), of_one));
    const tp_tensor one = tp_full(T, tp_dtype_of(x), TP_SHAPE(tp_dim(x, 0), 1), 1.0);
    const tp_tensor rows = tp_concat(T, 1, x, one);
    const double each = (double)(G * H);
    const tp_packed of_u = { tp_arange(T, TP_I32, 0.0, (double)(B + 1) * each, each), G * H };
    const tp_attn_cfg c = { .heads = 1,
                            .scale = 1.0 / sqrt((double)(d / H)),
                            .dropout = m->dropout };
    const tp_tensor y = tp_packed_attention(T, u, rows, rows, of_u, *of, c);
    tp_enter(T, value->path);
    tp_tensor z = tp_linear_product(T, value, tp_slice(T, y, 1, 0, d));
    z = tp_leave(T, tp_add(T, z, tp_mul(T, tp_slice(T, y, 1, d, 1), value->bias)));
    z = tp_mul(T, tp_reshape(T, z, TP_SHAPE(B * G, H, H, d / H)), same);
    z = tp_cast(T, tp_sum(T, z, TP_AXES(1)), tp_dtype_of(q));
    return tp_reshape(T, z, TP_SHAPE(B, G, d));
}

/* Global queries q [B,G,d] over keys and values of all tokens. */
static tp_tensor projected(tp_tape *T, const tp_longformer_m *m, tp_tensor q, tp_tensor x,
                           const tp_longformer_in *a)
{
    const int64_t B = tp_dim(q, 0), G = tp_dim(q, 1);
    const tp_attn_cfg c = { .heads = m->heads, .dropout = m->dropout };
    const tp_tensor k = tp_linear_forward(T, &m->key_global, x);
    const tp_tensor v = tp_linear_forward(T, &m->value_global, x);
    if (!is_packed(a)) return tp_attention(T, q, k, v, a->mask, TP_NONE, c);
    const double end = (double)((B + 1) * G);
    const tp_packed of_q = { tp_arange(T, TP_I32, 0.0, end, (double)G), G };
    const tp_tensor z = tp_packed_attention(T, flat(T, q), k, v, of_q, a->of, c);
    return tp_reshape(T, z, tp_shape_of(q));
}

/* Adds the global queries' results to their rows of y, which are zero. */
static tp_tensor add_global(tp_tape *T, const tp_longformer_m *m, tp_tensor y, tp_tensor x,
                            const tp_longformer_in *a)
{
    const tp_roberta_global *g = &a->global;
    const tp_tensor q = tp_linear_forward(T, &m->query_global, pick(T, x, g));
    if (!tp_ok(T)) return TP_NONE;
    const bool few = tp_dim(q, 1) * m->heads <= tp_dim(q, 2);
    tp_tensor z = is_packed(a) && few ? folded(T, m, q, x, &a->of) : projected(T, m, q, x, a);
    z = tp_masked_fill(T, z, tp_logical_not(T, tp_unsqueeze(T, g->used, -1)), 0.0);
    y = tp_index_add(T, flat(T, y), 0, g->rows, flat(T, z));
    return tp_reshape(T, y, tp_shape_of(x));
}

static tp_tensor forward(tp_tape *T, const tp_longformer_m *m, tp_tensor x,
                         const tp_longformer_in *a)
{
    const int64_t half = m->window / 2;
    const tp_roberta_global *g = &a->global;
    const tp_window_attn_cfg c = { .heads = m->heads,
                                   .height = 1,
                                   .width = is_packed(a) ? a->of.longest : tp_dim(x, 1),
                                   .window = { 1, half },
                                   .halo = { 0, half },
                                   .edge = TP_EDGE_EXACT,
                                   .dropout = m->dropout };
    tp_window_in in = { .q = tp_linear_forward(T, &m->query, x),
                        .k = tp_linear_forward(T, &m->key, x),
                        .v = tp_linear_forward(T, &m->value, x),
                        .mask = tp_given(g->local) ? g->local : a->mask,
                        .offset = a->of.offset };
    if (tp_given(g->rows)) {
        in.low_k = pick(T, in.k, g);
        in.low_v = pick(T, in.v, g);
        in.low_mask = g->used;
    }
    const tp_tensor y = tp_window_attention_2d(T, in, c);
    return tp_given(g->rows) ? add_global(T, m, y, x, a) : y;
}

tp_tensor tp__longformer(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_longformer_m *m = module;
    const tp_longformer_in *in = with;
    const int64_t half = m->window / 2;
    const bool packed = is_packed(in);
    tp_enter(T, m->path);
    if (tp_ok(T) && !packed && (tp_ndim(x) != 3 || tp_dim(x, 1) % half))
        tp_raise(T, TP_E_SHAPE,
                 "x must be [batch,tokens,width], tokens a multiple of half a window, %lld: pad "
                 "them",
                 (long long)half);
    else if (tp_ok(T) && packed && (tp_ndim(x) != 2 || tp_ndim(in->of.offset) != 1))
        tp_raise(T, TP_E_SHAPE, "x must be [rows,width] and offsets [documents + 1]");
    return tp_leave(T, tp_ok(T) ? forward(T, m, x, in) : TP_NONE);
}
