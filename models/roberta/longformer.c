/* longformer.c - attention in windows with global tokens (Beltagy et al. 2020, section 3).
 *
 *     local i    softmax(q_i [k_global, k_j of the local j with |i - j| <= W/2])
 *     global i   softmax(q'_i k'_j of all real j), with projections of their own
 *
 * The sequence is a map of height 1 in chunks of W/2 tokens whose edge is exact. Keys of global tokens are low
 * keys; as tokens of the map they are masked, so their rows of the result are zeros, to which the results of the
 * global queries are added. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/roberta.h>

void tp_longformer_init(tp_params *P, tp_longformer_m *m, const char *name, int64_t dim, int heads,
                        int64_t window, double dropout)
{
    if (!tp_params_want_module(P, m, "longformer")) return;
    *m = (tp_longformer_m){ .heads = heads, .window = window, .dropout = dropout };
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

/* The largest number of global tokens of a sample. */
static int64_t most_global(const uint8_t *code, int64_t B, int64_t n)
{
    int64_t most = 0;
    for (int64_t b = 0; b < B; b++) {
        int64_t count = 0;
        for (int64_t i = 0; i < n; i++) count += code[b * n + i] == 2;
        most = count > most ? count : most;
    }
    return most;
}

tp_roberta_global tp_roberta_global_tokens(tp_tape *T, const uint8_t *code, int64_t B, int64_t n)
{
    tp_roberta_global g = { TP_NONE, TP_NONE, TP_NONE };
    const int64_t G = most_global(code, B, n);
    int32_t *rows = calloc((size_t)(B * G) + 1, sizeof *rows);
    uint8_t *used = calloc((size_t)(B * (G + n)) + 1, 1), *local = used ? used + B * G : NULL;
    if (!rows || !used) {
        g.local = tp_raise(T, TP_E_MEMORY, "global tokens: out of memory");
    } else {
        for (int64_t b = 0; b < B; b++) {
            int64_t k = b * G;
            for (int64_t i = b * n; i < (b + 1) * n; i++) {
                local[i] = code[i] == 1;
                if (code[i] != 2) continue;
                rows[k] = (int32_t)i;
                used[k++] = 1;
            }
            for (; k < (b + 1) * G; k++) rows[k] = (int32_t)(b * n);
        }
        g.local = tp_from(T, TP_U8, TP_SHAPE(B, n), local);
        if (G > 0) g.rows = tp_from(T, TP_I32, TP_SHAPE(B * G), rows);
        if (G > 0) g.used = tp_from(T, TP_U8, TP_SHAPE(B, G), used);
    }
    free(rows);
    free(used);
    return g;
}

/* Rows of x [B,n,d] -> [B,G,d]. */
static tp_tensor pick(tp_tape *T, tp_tensor x, const tp_roberta_global *g)
{
    const int64_t B = tp_dim(x, 0), n = tp_dim(x, 1), d = tp_dim(x, 2), G = tp_dim(g->used, 1);
    const tp_tensor flat = tp_reshape(T, x, TP_SHAPE(B * n, d));
    return tp_reshape(T, tp_index_select(T, flat, 0, g->rows), TP_SHAPE(B, G, d));
}

/* The results of the global queries, added to their rows of y, which are zeros. */
static tp_tensor add_global(tp_tape *T, const tp_longformer_m *m, tp_tensor y, tp_tensor x,
                            tp_tensor mask, const tp_roberta_global *g)
{
    const int64_t B = tp_dim(x, 0), n = tp_dim(x, 1), d = tp_dim(x, 2), G = tp_dim(g->used, 1);
    const tp_attn_cfg c = { .heads = m->heads, .dropout = m->dropout };
    tp_tensor z = tp_attention(T, tp_linear_forward(T, &m->query_global, pick(T, x, g)),
                               tp_linear_forward(T, &m->key_global, x),
                               tp_linear_forward(T, &m->value_global, x), mask, TP_NONE, c);
    z = tp_masked_fill(T, z, tp_logical_not(T, tp_unsqueeze(T, g->used, -1)), 0.0);
    y = tp_index_add(T, tp_reshape(T, y, TP_SHAPE(B * n, d)), 0, g->rows,
                     tp_reshape(T, z, TP_SHAPE(B * G, d)));
    return tp_reshape(T, y, TP_SHAPE(B, n, d));
}

tp_tensor tp_longformer_forward(tp_tape *T, const tp_longformer_m *m, tp_tensor x, tp_tensor mask,
                                tp_roberta_global g)
{
    if (!tp_want_module(T, m, "longformer")) return TP_NONE;
    const int64_t half = m->window / 2;
    tp_enter(T, m->path);
    if (tp_ok(T) && (tp_ndim(x) != 3 || tp_dim(x, 1) % half))
        return tp_leave(
            T, tp_raise(T, TP_E_SHAPE,
                        "x must be [batch,tokens,width], tokens a multiple of half a window, "
                        "%lld: pad them",
                        (long long)half));
    tp_window_in in = { .q = tp_linear_forward(T, &m->query, x),
                        .k = tp_linear_forward(T, &m->key, x),
                        .v = tp_linear_forward(T, &m->value, x),
                        .mask = tp_given(g.local) ? g.local : mask };
    if (tp_given(g.rows)) {
        in.low_k = pick(T, in.k, &g);
        in.low_v = pick(T, in.v, &g);
        in.low_mask = g.used;
    }
    const tp_tensor y = tp_window_attention_2d(T, in,
                                               (tp_window_attn_cfg){ .heads = m->heads,
                                                                     .height = 1,
                                                                     .width = tp_dim(x, 1),
                                                                     .window = { 1, half },
                                                                     .halo = { 0, half },
                                                                     .edge = TP_EDGE_EXACT,
                                                                     .dropout = m->dropout });
    return tp_leave(T, tp_given(g.rows) ? add_global(T, m, y, x, mask, &g) : y);
}
