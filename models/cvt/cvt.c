/* cvt.c - CvT, CvT* and CvT*-LS: images to classes in three stages.
 *
 *     map    = norm(conv(map))               token embedding: smaller and wider
 *     x      = tokens(map)                   in the last stage after the class token
 *     x      = x + attn(norm1(x))            for each block; with drop path in training
 *     x      = x + mlp(norm2(x))
 *     logits = head(norm(class token))       or of the mean of all normalised tokens
 *
 * Resolution changes only the map's size; no weight depends on it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

#define STAGES   TP_CVT_STAGES
#define MAX_SIZE (1 << 20) /* of widths, ranks, windows, classes, images, so that products fit */

/* ---- presets ---- */

enum { CVT_13, CVT_21, CVT_W24, STAR_13, STAR_21, LS_13, LS_17, LS_21, LS_21S };

/* The published models: name without image size, widths, heads, blocks. */
static const struct size {
    const char *name;
    int64_t dim[STAGES];
    int heads[STAGES], blocks[STAGES];
} sizes[] = {
    [CVT_13] = { "cvt-13", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 2, 10 } },
    [CVT_21] = { "cvt-21", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 4, 16 } },
    [CVT_W24] = { "cvt-w24", { 192, 768, 1024 }, { 3, 12, 16 }, { 2, 2, 20 } },
    [STAR_13] = { "cvt_star-13", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 2, 10 } },
    [STAR_21] = { "cvt_star-21", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 4, 16 } },
    [LS_13] = { "cvt_ls-13", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 2, 10 } },
    [LS_17] = { "cvt_ls-17", { 128, 256, 384 }, { 2, 4, 6 }, { 3, 4, 10 } },
    [LS_21] = { "cvt_ls-21", { 64, 192, 384 }, { 1, 3, 6 }, { 1, 4, 16 } },
    [LS_21S] = { "cvt_ls-21s", { 128, 256, 384 }, { 2, 4, 6 }, { 3, 4, 14 } },
};

/* 224, 384 and 448 have their own ranks and windows; other sizes use the next smaller one's. */
static void set_long_short(tp_cvt_cfg *c, int64_t size)
{
    for (int s = 0; s < STAGES; s++) {
        c->rank[s] = (size < 448 ? 64 : 128) >> 2 * s;
        c->window[s] = (size < 384 ? 8 : size < 448 ? 12 : 16) >> s;
    }
    c->long_short = true;
}

/* Drop path is 0.1 where the papers use it. */
static tp_cvt_cfg published(int which, int64_t size)
{
    const struct size *z = &sizes[which];
    tp_cvt_cfg c = { .image = { size, size },
                     .classes = 1000,
                     .kv_stride = 1,
                     .class_std = 0.02,
                     .drop_path = 0.1 };

    memcpy(c.dim, z->dim, sizeof c.dim);
    memcpy(c.heads, z->heads, sizeof c.heads);
    memcpy(c.blocks, z->blocks, sizeof c.blocks);
    if (which <= CVT_W24) {
        c.kv_stride = 2;
        c.wide_scale = c.quick_gelu = c.single_proj = c.drop_last_stage = true;
        if (which == CVT_W24) c.drop_path = 0.3;
        return c;
    }
    c.conv_bias = true;
    if (which >= LS_13) {
        set_long_short(&c, size);
    } else {
        c.raw_class = true;
        c.class_std = 1.0;
        c.drop_path = 0.0;
    }
    return c;
}

/* Returns text after the prefix `start`, or NULL without it; '-' equals '_'. */
static const char *rest_of(const char *text, const char *start)
{
    for (; *start; text++, start++)
        if (*text != *start && !(*text == '-' && *start == '_')) return NULL;
    return text;
}

/* Parses the name of a published model, "-" and the side of images: "cvt_ls-13-224". */
static bool model_preset(void *cfg, const char *text, char *why, size_t size)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *rest = rest_of(text, sizes[i].name);
        if (!rest || rest[0] != '-' || rest[1] < '1' || rest[1] > '9') continue;
        char *end;
        const long side = strtol(rest + 1, &end, 10);
        if (*end || side > MAX_SIZE) continue;
        *(tp_cvt_cfg *)cfg = published((int)i, side);
        return true;
    }
    snprintf(why, size, "no CvT is called '%.80s'", text);
    return false;
}

/* Table 5 of Transformer-LS, then small ones. */
#define SMALL                                                                                      \
    .image = { 64, 64 }, .classes = 1000, .kv_stride = 1, .dim = { 48, 96, 192 },                  \
    .heads = { 1, 2, 4 }, .blocks = { 1, 2, 4 }, .conv_bias = true, .class_std = 0.02
static const tp_model_row presets[] = {
    { "cvt-13-224", "CvT", .also = "cvt-13 CvT-13", .params = 20e6, .flops = 4.5e9 },
    { "cvt-13-384", "CvT", .params = 20e6, .flops = 16.3e9 },
    { "cvt-21-224", "CvT", .also = "cvt-21 CvT-21", .params = 32e6, .flops = 7.1e9 },
    { "cvt-21-384", "CvT", .params = 32e6, .flops = 24.9e9 },
    { "cvt-w24-224", "CvT", .also = "cvt-w24", .params = 277e6 },
    { "cvt-w24-384", "CvT", .also = "CvT-W24", .params = 277e6, .flops = 193.2e9 },
    { "cvt_star-13-224", "CvT*", .also = "cvt-star-13 CvT*-13", .flops = 6.7e9, .norm_cost = 5 },
    { "cvt_star-13-384", "CvT*", .flops = 31.9e9, .norm_cost = 5 },
    { "cvt_star-21-224", "CvT*", .also = "cvt-star-21 CvT*-21", .flops = 10.1e9, .norm_cost = 5 },
    { "cvt_star-21-384", "CvT*", .flops = 45.0e9, .norm_cost = 5 },
    { "cvt_ls-13-224", "CvT*-LS", .also = "cvt-ls-13 CvT*-LS-13", .params = 20.3e6, .flops = 4.9e9,
      .norm_cost = 5 },
    { "cvt_ls-13-384", "CvT*-LS", .params = 20.3e6, .norm_cost = 5 },
    { "cvt_ls-17-224", "CvT*-LS", .also = "cvt-ls-17 CvT*-LS-17", .params = 23.7e6, .flops = 9.8e9,
      .norm_cost = 5 },
    { "cvt_ls-21-224", "CvT*-LS", .also = "cvt-ls-21 CvT*-LS-21", .params = 32.1e6, .flops = 7.9e9,
      .norm_cost = 5 },
    { "cvt_ls-21s-224", "CvT*-LS", .also = "cvt-ls-21s CvT*-LS-21S", .params = 30.1e6,
      .flops = 11.3e9, .norm_cost = 5 },
    { "cvt_ls-21-384", "CvT*-LS", .params = 32.1e6, .flops = 23.9e9, .norm_cost = 5 },
    { "cvt_ls-21-448", "CvT*-LS", .params = 32.1e6, .flops = 34.2e9, .norm_cost = 5 },
    /* Three stages of 48 to 192 channels, with windows and ranks for images of 64 x 64. */
    { "cvt-small", "CvT*", .norm_cost = 5, .cfg = &(const tp_cvt_cfg){ SMALL } },
    { "cvt-ls-small", "CvT*-LS", .norm_cost = 5,
      .cfg = &(const tp_cvt_cfg){ SMALL, .long_short = true, .rank = { 16, 8, 4 },
                                  .window = { 4, 2, 2 } } },
    { 0 },
};

/* ---- members: keys as in the reference cases; lists have one value per stage ---- */

#define AT(member) offsetof(tp_cvt_cfg, member)
static const tp_model_member members[] = {
    { "num_classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS, .least = 1,
      .most = MAX_SIZE },
    { "stride_kv", TP_MEMBER_INT64, .at = AT(kv_stride), .least = 1, .most = MAX_SIZE },
    { "dims", TP_MEMBER_INT64S, .at = AT(dim), .count = STAGES, .least = 1, .most = MAX_SIZE },
    { "heads", TP_MEMBER_INTS, .at = AT(heads), .count = STAGES, .least = 1, .most = MAX_SIZE },
    { "depth", TP_MEMBER_INTS, .at = AT(blocks), .count = STAGES, .least = 0,
      .most = TP_CVT_MAX_BLOCKS },
    { "long_short", TP_MEMBER_FLAG, .at = AT(long_short) },
    { "r", TP_MEMBER_INT64S, .at = AT(rank), .count = STAGES },
    { "w", TP_MEMBER_INT64S, .at = AT(window), .count = STAGES },
    { "conv_bias", TP_MEMBER_FLAG, .at = AT(conv_bias) },
    { "wide_scale", TP_MEMBER_FLAG, .at = AT(wide_scale) },
    { "quick_gelu", TP_MEMBER_FLAG, .at = AT(quick_gelu) },
    { "raw_class", TP_MEMBER_FLAG, .at = AT(raw_class) },
    { "single_proj", TP_MEMBER_FLAG, .at = AT(single_proj) },
    { "no_dual_ln", TP_MEMBER_FLAG, .at = AT(raw_kv) },
    { "biased_ws", TP_MEMBER_FLAG, .at = AT(biased_ws) },
    { "mean_pool", TP_MEMBER_FLAG, .at = AT(mean_pool) },
    { "class_std", TP_MEMBER_REAL, .at = AT(class_std) },
    { "drop_path", TP_MEMBER_RATE, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { "drop_last_stage", TP_MEMBER_FLAG, .at = AT(drop_last_stage) },
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE,
      .older = "classifier_size", .otherwise = 224, .least = 1, .most = MAX_SIZE },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- checks ---- */

static bool is_size(int64_t n)
{
    return tp__in_range(n, 1, MAX_SIZE);
}

static void check_stage(const tp_cvt_cfg *c, int s, char *buf, size_t size)
{
    const long long D = (long long)c->dim[s], r = (long long)c->rank[s],
                    w = (long long)c->window[s];

    if (D % c->heads[s])
        snprintf(buf, size, "the width %lld of stage %d does not divide into %d heads", D, s,
                 c->heads[s]);
    else if (c->long_short && (!is_size(r) || !is_size(w) || !is_size(r * c->heads[s])))
        snprintf(buf, size,
                 "stage %d has a window of %lld and %d heads of rank %lld: sizes must be 1 to %d",
                 s, w, c->heads[s], r, MAX_SIZE);
}

static bool model_check(const void *cfg, char *why, size_t size)
{
    const tp_cvt_cfg *c = cfg;
    int blocks = 0;

    if (!tp__check_members(members, c, why, size)) return false;
    for (int s = 0; s < STAGES && !why[0]; s++) {
        check_stage(c, s, why, size);
        blocks += why[0] ? 0 : c->blocks[s];
    }
    if (why[0]) return false;
    if (blocks > TP_CVT_MAX_BLOCKS)
        snprintf(why, size, "the model has %d blocks, not at most %d", blocks, TP_CVT_MAX_BLOCKS);
    else if (c->long_short && c->kv_stride > 1)
        snprintf(
            why, size,
            "the stride of keys and values is %lld, but long-short attention needs all of them",
            (long long)c->kv_stride);
    else if (!(c->class_std >= 0.0 && c->class_std <= MAX_SIZE))
        snprintf(why, size, "the class token has the standard deviation %g, not 0 to %d",
                 c->class_std, MAX_SIZE);
    return !why[0];
}

/* ---- token embedding ---- */

static void embed_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_cvt_embed *m = module;
    const tp_cvt_embed_cfg *c = cfg;
    const tp_conv_cfg conv = { { c->stride, c->stride }, { c->pad, c->pad }, { 1, 1 }, 1 };

    m->path = tp_push(P, name);
    tp_conv2d_init(P, &m->proj, "proj", c->in, c->out, c->kernel, true, conv);
    tp_layernorm_init(P, &m->norm, "norm", c->out, 1e-5);
    tp_pop(P);
}

static tp_tensor embed_forward(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_cvt_embed *m = module;
    (void)with;
    tp_enter(T, m->path);
    return tp_leave(T, tp_layernorm_forward(T, &m->norm, tp_conv2d_forward(T, &m->proj, x)));
}

/* ---- block ---- */

static void block_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_cvt_block *m = module;
    const tp_cvt_block_cfg *b = cfg;
    const tp_cvt_cfg *c = b->model;
    const int64_t D = c->dim[b->stage];
    const tp_act act = c->quick_gelu ? TP_ACT_QUICK_GELU : TP_ACT_GELU;

    m->path = tp_push(P, name);
    m->drop_path = b->drop_path;
    m->recompute = c->recompute;
    tp_layernorm_init(P, &m->norm1, "norm1", D, 1e-5);
    tp__cvt_attn_init(P, &m->attn, "attn", b);
    tp_layernorm_init(P, &m->norm2, "norm2", D, 1e-5);
    tp_mlp_init(P, &m->mlp, "mlp.fc1", "mlp.fc2", D, 4 * D, act, 0.0);
    tp_pop(P);
}

/* x: tokens, grid -> x + attn(norm1(x)). */
static tp_tensor attend(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_cvt_block *m = self;
    const tp_tensor u = tp_layernorm_forward(T, &m->norm1, x[0]);
    tp_tensor grid = x[1];
    const tp_tensor y = tp__cvt_attn(T, &m->attn, &grid, u);
    (void)nx;
    return tp_add(T, x[0], tp_drop_path(T, y, m->drop_path));
}

static tp_tensor run_block(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_cvt_block *m = self;
    tp_enter(T, m->path);
    const tp_tensor a = m->recompute == TP_RECOMPUTE_ATTENTION
                            ? tp_checkpoint_n(T, attend, m, nx, x)
                            : attend(T, m, nx, x);
    return tp_leave(T, tp__feed_forward(T, &m->norm2, &m->mlp, a, m->drop_path));
}

static tp_tensor block_forward(tp_tape *T, const void *module, void *grid, tp_tensor x)
{
    const tp_cvt_block *m = module;
    const tp_tensor in[] = { x, *(tp_tensor *)grid };
    return m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint_n(T, run_block, m, 2, in)
                                              : run_block(T, m, 2, in);
}

/* ---- model ---- */

/* Linear weights are N(0, 0.02), biases 0 except in the head and in convolutions. */
static tp_init init_rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    const bool bias = s.ndim == 1 && tp_ends_in(name, ".bias");
    (void)env;
    if (s.ndim == 2) return (tp_init){ TP_INIT_NORMAL, 0.02, 0.0 };
    if (!bias || tp_ends_in(name, "head.bias") || tp_ends_in(name, "conv.bias") ||
        tp_ends_in(name, "patch_embed.proj.bias"))
        return dflt;
    return (tp_init){ .kind = TP_INIT_ZERO };
}

/* Drop path rate of block b of `stage`, block i of the model. */
static double rate_of(const tp_cvt_cfg *c, int stage, int b, int i)
{
    int at = i, last = -1;
    if (c->drop_last_stage) {
        at = stage == TP_CVT_STAGES - 1 ? b : 0;
        last = c->blocks[TP_CVT_STAGES - 1] - 1;
    } else {
        for (int s = 0; s < TP_CVT_STAGES; s++) last += c->blocks[s];
    }
    return last > 0 ? c->drop_path * at / last : 0.0;
}

/* Declares stage s, whose first block is block i of the model; returns the next first block. */
static int init_stage(tp_params *P, tp_cvt *m, int s, int i)
{
    const tp_cvt_cfg *c = &m->cfg;
    const bool last = s == TP_CVT_STAGES - 1;
    char name[32];

    snprintf(name, sizeof name, "stage%d", s);
    tp_push(P, name);
    const tp_cvt_embed_cfg first = { 3, c->dim[s], 7, 4, 2 };
    const tp_cvt_embed_cfg later = { s ? c->dim[s - 1] : 0, c->dim[s], 3, 2, 1 };
    embed_init(P, &m->embed[s], "patch_embed", s ? &later : &first);
    if (last && !c->mean_pool)
        m->cls_token = tp_param(P, "cls_token", TP_SHAPE(1, 1, c->dim[s]),
                                (tp_init){ TP_INIT_NORMAL, c->class_std, 0.0 }, 0);
    for (int b = 0; b < c->blocks[s]; b++, i++) {
        snprintf(name, sizeof name, "blocks.%d", b);
        const tp_cvt_block_cfg block = { c, s, rate_of(c, s, b, i) };
        block_init(P, &m->block[i], name, &block);
    }
    tp_pop(P);
    return i;
}

static void model_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_cvt *m = module;
    const tp_cvt_cfg *c = cfg;
    const int64_t width = c->dim[TP_CVT_STAGES - 1];
    char why[256];
    int i = 0;

    *m = (tp_cvt){ .params = P, .cfg = *c };
    if (!model_check(c, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "CvT: %s", why);
        return;
    }
    m->path = tp_push(P, name);
    tp_params_init_rule(P, init_rule, NULL);
    for (int s = 0; s < TP_CVT_STAGES; s++) i = init_stage(P, m, s, i);
    tp_layernorm_init(P, &m->norm, "norm", width, 1e-5);
    tp_linear_init(P, &m->head, "head", width, c->classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

/* Stage s: map [B,H,W,C] -> tokens [B,c+H'W',D]; *grid is [H',W',0], the map without channels. */
static tp_tensor run_stage(tp_tape *T, const tp_cvt *m, int s, tp_tensor map, tp_tensor *grid)
{
    int first = 0;
    for (int i = 0; i < s; i++) first += m->cfg.blocks[i];

    map = embed_forward(T, &m->embed[s], NULL, map);
    const int64_t B = tp_dim(map, 0), H = tp_dim(map, 1), W = tp_dim(map, 2), D = tp_dim(map, 3);
    tp_tensor x = tp_reshape(T, map, TP_SHAPE(B, H * W, D));
    if (s == TP_CVT_STAGES - 1 && tp_given(m->cls_token)) x = tp__prepend(T, m->cls_token, x);
    *grid = tp_full(T, TP_F32, TP_SHAPE(H, W, 0), 0.0);
    for (int b = 0; b < m->cfg.blocks[s]; b++) x = block_forward(T, &m->block[first + b], grid, x);
    return x;
}

/* tokens [B,c+N,D] -> [B,D] */
static tp_tensor pool(tp_tape *T, const tp_cvt *m, tp_tensor x)
{
    const tp_shape s = TP_SHAPE(tp_dim(x, 0), tp_dim(x, 2));

    if (m->cfg.mean_pool) return tp_mean(T, tp_layernorm_forward(T, &m->norm, x), 1);
    return tp_layernorm_forward(T, &m->norm, tp_reshape(T, tp_slice(T, x, 1, 0, 1), s));
}

static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor images)
{
    const tp_cvt *m = module;
    (void)state;
    tp_tensor x = images, grid;

    tp_enter(T, m->path);
    tp__check_images(T, m->params, images);
    for (int s = 0; s < TP_CVT_STAGES; s++) {
        const int64_t B = tp_dim(x, 0);
        x = run_stage(T, m, s, x, &grid);
        if (s < TP_CVT_STAGES - 1)
            x = tp_reshape(T, x, TP_SHAPE(B, tp_dim(grid, 0), tp_dim(grid, 1), m->cfg.dim[s]));
    }
    return tp_leave(T, tp_linear_forward(T, &m->head, pool(T, m, x)));
}

/* ---- weights for another resolution, with projections of larger rank ----
 *
 * Rows of proj_p are head * rank + i. If the rank grows k times, each row is repeated k times,
 * which repeats each projection; the initial values of P are added as noise, so that they can
 * diverge. */

static bool resizes_to(const char *name, const tp_shape *here, const tp_shape *there)
{
    if (!tp_ends_in(name, "proj_p.weight") && !tp_ends_in(name, "proj_p.bias")) return false;
    return here->ndim == there->ndim && there->dim[0] > 0 && here->dim[0] % there->dim[0] == 0 &&
           (here->ndim == 1 || here->dim[1] == there->dim[1]);
}

/* Adds row i / k of t to row i of the parameter, k > 0. */
static bool grow(tp_params *P, tp_file *F, const tp_param_info *it, const tp_file_tensor *t,
                 int64_t k)
{
    const int64_t n = tp_numel(it->tensor), rows = it->shape.dim[0], columns = n / rows;
    const size_t bytes = (size_t)n * sizeof(double);
    double *x = malloc(bytes), *from = malloc(bytes);
    bool ok = false;

    if (!x || !from) {
        tp_params_raise(P, TP_E_MEMORY, "%s: out of host memory", it->name);
    } else if (!tp_file_read(F, t, TP_F64, from)) {
        tp_params_raise(P, TP_E_IO, "%s", tp_file_why(F));
    } else {
        ok = tp_param_get(P, it->tensor, TP_F64, x, bytes);
        for (int64_t i = 0; ok && i < n; i++) x[i] += from[i / columns / k * columns + i % columns];
        ok = ok && tp_param_set(P, it->tensor, TP_F64, x, bytes);
        if (!ok) tp_params_raise(P, TP_E_VALUE, "%s", tp_params_why(P));
    }
    free(x);
    free(from);
    return ok;
}

/* Loads the parameters of equal shape, then those that grow. */
static bool model_load(tp_params *P, const void *m, tp_file *F)
{
    (void)m;
    if (!tp_params_read(P, F, "", &(tp_load_opts){ .convert = true, .resizes = resizes_to }))
        return false;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const tp_file_tensor *t = tp_file_find(F, it.name);
        if (t && !tp__equal_shapes(&t->shape, &it.shape) &&
            !grow(P, F, &it, t, it.shape.dim[0] / t->shape.dim[0]))
            return false;
    }
    return true;
}

/* ---- the model ---- */

/* Ranks and windows may differ, since they follow the size of images. */
static bool model_same(const void *one, const void *other)
{
    const tp_cvt_cfg *a = one, *b = other;
    return memcmp(a->dim, b->dim, sizeof a->dim) == 0 &&
           memcmp(a->heads, b->heads, sizeof a->heads) == 0 &&
           memcmp(a->blocks, b->blocks, sizeof a->blocks) == 0 && a->long_short == b->long_short &&
           a->conv_bias == b->conv_bias;
}

/* The names of Hugging Face's transformers. */
static const tp_spelling spellings[] = {
    { "cvt.encoder.stages.", "stage" },
    { ".embedding.convolution_embeddings.projection.", ".patch_embed.proj." },
    { ".embedding.convolution_embeddings.normalization.", ".patch_embed.norm." },
    { ".layers.", ".blocks." },
    { ".attention.attention.convolution_projection_", ".attn.conv_proj_" },
    { ".attention.attention.projection_", ".attn.proj_" },
    { "proj_query.", "proj_q." },
    { "proj_key.", "proj_k." },
    { "proj_value.", "proj_v." },
    { ".convolution_projection.convolution.", ".conv." },
    { ".convolution_projection.normalization.", ".bn." },
    { ".attention.output.dense.", ".attn.proj." },
    { ".intermediate.dense.", ".mlp.fc1." },
    { ".output.dense.", ".mlp.fc2." },
    { ".layernorm_before.", ".norm1." },
    { ".layernorm_after.", ".norm2." },
    { "layernorm.", "norm." },
    { "classifier.", "head." },
    { 0 },
};

/* Like the published code, the paper counts whole windows. */
static void model_paper(const void *cfg, int64_t tokens, tp_cost *cost)
{
    (void)cfg;
    (void)tokens;
    cost->paper += cost->beyond;
}

static const tp_model_part parts[] = {
    { "embed", sizeof(tp_cvt_embed), embed_init, embed_forward },
    { "attn", sizeof(tp_cvt_attn), tp__cvt_attn_init, tp__cvt_attn },
    { "block", sizeof(tp_cvt_block), block_init, block_forward },
    { 0 },
};

const tp_model tp_model_cvt = {
    .name = "cvt",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_cvt_cfg),
    .size = sizeof(tp_cvt),
    .presets = presets,
    .preset = model_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .paper = model_paper,
    .same = model_same,
    .load = model_load,
    .resizes = "projections are repeated where the rank grows with the size",
    .resizes_to = resizes_to,
    .head = "head.weight",
    .spellings = spellings,
    .parts = parts,
};
