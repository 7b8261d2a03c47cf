/* attention.c - the attention module of ViT-LSLA (Hechen et al. 2022, section 3.2).
 *
 *     y = proj((softmax(E (q k^T) + inner + mask) + outer) v)     q = fc_q(x)
 *
 * in each window and head. k and v are x itself, so a layer has two matrices, not four; variants
 * project them. The op reads windows directly from the map. tp_lsla_attn_maps recomputes the scores
 * and weights in plain ops, since the op stores nothing of their size. */
#include <math.h>
#include <stdlib.h>

#include "inner.h"

void tp__lsla_attn_init(tp_params *P, void *module, const char *name, const void *config)
{
    tp_lsla_attn_m *m = module;
    const tp_lsla_part_cfg *c = config;
    const tp_lsla_cfg cfg = c->attn;
    int64_t dim = c->dim, window = c->window;
    int heads = c->heads;
    if (heads < 1 || dim < 1 || dim % heads || window < 1) {
        tp_params_raise(
            P, TP_E_VALUE,
            "self-limited attention %s: a width of %lld in %d heads with a window of %lld is "
            "impossible",
            name, (long long)dim, heads, (long long)window);
        dim = heads = 1;
        window = 1;
    }
    const bool k = cfg.variant == TP_LSLA_QKV, v = k || cfg.variant == TP_LSLA_QXV;
    const bool proj = cfg.variant == TP_LSLA_QXX || cfg.variant == TP_LSLA_QKV;
    const int64_t n = window * window, rows = (2 * window - 1) * (2 * window - 1);
    const tp_init even = { TP_INIT_CONST, 1.0 / sqrt((double)(dim / heads)), 0.0 };
    const tp_init normal = { TP_INIT_NORMAL, 0.02, 0.0 };
    static const char inner[] = "inner_relative_position_bias_table";
    static const char outer[] = "outer_relative_position_bias_table";

    *m = (tp_lsla_attn_m){ .path = tp_push(P, name), .cfg = cfg, .heads = heads, .window = window };
    tp_linear_init(P, &m->q, "fc_q", dim, dim, true);
    if (k) tp_linear_init(P, &m->k, "fc_k", dim, dim, true);
    if (v) tp_linear_init(P, &m->v, "fc_v", dim, dim, true);
    if (proj) tp_linear_init(P, &m->proj, "proj", dim, dim, true);
    if (!cfg.fixed_scale) m->scale = tp_param(P, "dynamic_scale", TP_SHAPE(n, n), even, 0);
    if (!cfg.raw_scores) m->inner = tp_param(P, inner, TP_SHAPE(rows, heads), normal, 0);
    if (!cfg.raw_weights) m->outer = tp_param(P, outer, TP_SHAPE(rows, heads), normal, 0);
    tp_pop(P);
}

/* x [B,H,W,D] as tokens [B,H*W,D]. */
static tp_tensor tokens(tp_tape *T, tp_tensor x)
{
    return tp_reshape(T, x, TP_SHAPE(tp_dim(x, 0), tp_dim(x, 1) * tp_dim(x, 2), tp_dim(x, 3)));
}

static tp_tensor project(tp_tape *T, const tp_linear_m *m, tp_tensor x)
{
    return tp_given(m->weight) ? tp_linear_forward(T, m, x) : x;
}

tp_tensor tp__lsla_attn(tp_tape *T, const void *module, void *shift, tp_tensor map)
{
    const tp_lsla_attn_m *m = module;
    const tp_lsla_attn_cfg cfg = { .heads = m->heads,
                                   .height = tp_dim(map, 1),
                                   .width = tp_dim(map, 2),
                                   .window = m->window,
                                   .shift = *(int64_t *)shift,
                                   .mask_outer = m->cfg.mask_outer };
    tp_enter(T, m->path);
    const tp_tensor x = tokens(T, map);
    const tp_tensor q = project(T, &m->q, x), k = project(T, &m->k, x), v = project(T, &m->v, x);
    const tp_tensor y = tp_lsla_attention(T, q, k, v, m->scale, m->inner, m->outer, cfg);
    return tp_leave(T, tp_reshape(T, project(T, &m->proj, y), tp_shape_of(map)));
}

/* ---- attention maps, for figures ---- */

/* x [B,H,W,D] -> [B*windows,heads,n,d], rolled by the shift. */
static tp_tensor windows(tp_tape *T, const tp_lsla_attn_m *m, tp_tensor x, int64_t shift)
{
    const int64_t B = tp_dim(x, 0), rows = tp_dim(x, 1), cols = tp_dim(x, 2), D = tp_dim(x, 3);
    const int64_t w = m->window, H = m->heads;
    if (shift > 0) x = tp_roll(T, tp_roll(T, x, 1, -shift), 2, -shift);
    x = tp_reshape(T, x, TP_SHAPE(B * (rows / w), w, cols / w, w, D));
    x = tp_permute(T, x, TP_SHAPE(0, 2, 1, 3, 4));
    x = tp_reshape(T, x, TP_SHAPE(-1, w * w, H, D / H));
    return tp_permute(T, x, TP_SHAPE(0, 2, 1, 3));
}

/* The bias of all pairs of tokens in a window, [heads,n,n]. */
static tp_tensor spread(tp_tape *T, tp_tensor table, int64_t w)
{
    const int64_t n = w * w;
    int64_t *row = malloc((size_t)(n * n) * sizeof *row);
    if (!row) return tp_raise(T, TP_E_MEMORY, "relative biases: out of host memory");
    for (int64_t a = 0; a < n; a++)
        for (int64_t b = 0; b < n; b++)
            row[a * n + b] = (a / w - b / w + w - 1) * (2 * w - 1) + a % w - b % w + w - 1;
    const tp_tensor y = tp_embedding(T, table, tp_from(T, TP_I64, TP_SHAPE(n, n), row), 1.0);
    free(row);
    return tp_permute(T, y, TP_SHAPE(2, 0, 1));
}

/* Border region (0, 1 or 2) of row or column i of the rolled map. */
static int border(int64_t i, int64_t size, int64_t w, int64_t shift)
{
    return i < size - w ? 0 : i < size - shift ? 1 : 2;
}

/* [windows of an image,1,n,n]: `apart` for pairs of tokens in different border regions, else
 * `together`. */
static tp_tensor borders(tp_tape *T, const int64_t map[2], int64_t w, int64_t shift, float together,
                         float apart)
{
    const int64_t n = w * w, across = map[1] / w, count = map[0] / w * across;
    float *x = malloc((size_t)(count * n * n + 1) * sizeof *x);
    if (!x) return tp_raise(T, TP_E_MEMORY, "mask of windows: out of host memory");
    for (int64_t e = 0; e < count * n * n; e++) {
        const int64_t y0 = e / (n * n) / across * w, x0 = e / (n * n) % across * w;
        const int64_t a = e / n % n, b = e % n;
        const bool same =
            border(y0 + a / w, map[0], w, shift) == border(y0 + b / w, map[0], w, shift) &&
            border(x0 + a % w, map[1], w, shift) == border(x0 + b % w, map[1], w, shift);
        x[e] = shift == 0 || same ? together : apart;
    }
    const tp_tensor y = tp_from(T, TP_F32, TP_SHAPE(count, 1, n, n), x);
    free(x);
    return y;
}

tp_lsla_maps tp_lsla_attn_maps(tp_tape *T, const tp_lsla_attn_m *m, tp_tensor x, int64_t shift)
{
    if (!tp_want_module(T, m, "lsla_attn")) return (tp_lsla_maps){ .scores = TP_NONE };
    const int64_t w = m->window, n = w * w, H = m->heads;
    const int64_t map[2] = { tp_dim(x, 1), tp_dim(x, 2) };
    tp_lsla_maps y;
    tp_enter(T, m->path);
    const tp_tensor q = windows(T, m, project(T, &m->q, x), shift);
    const tp_tensor k = windows(T, m, project(T, &m->k, x), shift);
    const tp_dtype dt = tp_dtype_of(q);
    y.scores = tp_matmul_t(T, q, false, k, true);
    const tp_shape flat = tp_shape_of(y.scores);
    const tp_shape image = TP_SHAPE(tp_dim(x, 0), map[0] / w * (map[1] / w), H, n, n);

    tp_tensor z = tp_given(m->scale) ? tp_mul(T, y.scores, tp_cast(T, m->scale, dt))
                                     : tp_scale(T, y.scores, 1.0 / sqrt((double)tp_dim(q, 3)));
    if (tp_given(m->inner)) z = tp_add(T, z, tp_cast(T, spread(T, m->inner, w), dt));
    z = tp_reshape(T, z, image);
    z = tp_add(T, z, tp_cast(T, borders(T, map, w, shift, 0.0f, -100.0f), dt));
    y.logits = tp_reshape(T, z, flat);
    z = tp_softmax(T, z);
    y.before = tp_reshape(T, z, flat);
    if (tp_given(m->outer)) {
        tp_tensor outer = tp_cast(T, spread(T, m->outer, w), dt);
        if (m->cfg.mask_outer) {
            const tp_tensor seen = tp_cast(T, borders(T, map, w, shift, 1.0f, 0.0f), dt);
            outer = tp_mul(T, tp_expand(T, outer, TP_SHAPE(image.dim[1], H, n, n)), seen);
        }
        z = tp_add(T, z, outer);
    }
    y.after = tp_reshape(T, z, flat);
    const tp_tensor results[] = { y.scores, y.logits, y.before, y.after };
    tp_leave_n(T, 4, results);
    return y;
}
