/* swin.c - Swin Transformer: patches, stages of windowed blocks with mergings between them, a head.
 *
 *     x  = x + drop_path(attn(norm1(x)))      softmax(q k^T / sqrt(d) + table + mask) v in windows
 *     x  = x + drop_path(mlp(norm2(x)))       every second block shifts its windows by half
 *
 * Activations are maps [B,H,W,D] throughout; windows are never copied out: the attention is light
 * self-limited attention with separate keys and values, fixed scale and only the inner bias. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/swin.h>

#include "model_inner.h"
#include "parts.h"

/* A stage's map, its channels, and its parameters' window. */
typedef struct stage {
    int64_t map[2], dim, window;
} stage;

static stage stage_of(const tp_swin_cfg *c, int i)
{
    stage s = { .dim = c->dim << i, .window = c->window };
    for (int axis = 0; axis < 2; axis++) {
        s.map[axis] = c->image[axis] / 4 >> i;
        if (s.map[axis] < s.window) s.window = s.map[axis];
    }
    return s;
}

static int blocks_of(const tp_swin_cfg *c)
{
    int n = 0;
    for (int i = 0; i < c->stages; i++) n += c->depths[i];
    return n;
}

/* MAX_WIDTH also limits classes, so that products fit. */
enum { MAX_SIDE = 1 << 16, MAX_WINDOW = 128, MAX_WIDTH = 1 << 24 };

/* Tables 1 and 7 of the paper, Table 1 of ViT-LSLA for 102 classes, then a small one for images of
 * 64 x 64. */
/* clang-format off */
#define CFG(side, w, width, n, ratio, rate, ...) \
    .cfg = &(const tp_swin_cfg){ .image = { side, side }, .classes = 1000, .dim = width, \
                                 .stages = n, __VA_ARGS__, .window = w, .mlp_ratio = ratio, \
                                 .drop_path = rate }
#define DEPTHS(...) .depths = { __VA_ARGS__ }
#define HEADS(...)  .heads = { __VA_ARGS__ }
/* clang-format on */
static const tp_model_row presets[] = {
    { "swin-t", "Swin", .also = "swin-tiny swin_t Swin-T", .params = 28e6, .flops = 4.5e9,
      .norm_cost = 5, CFG(224, 7, 96, 4, 4, 0.2, DEPTHS(2, 2, 6, 2), HEADS(3, 6, 12, 24)) },
    { "swin-s", "Swin", .also = "swin-small swin_s Swin-S", .params = 50e6, .flops = 8.7e9,
      .norm_cost = 5, CFG(224, 7, 96, 4, 4, 0.3, DEPTHS(2, 2, 18, 2), HEADS(3, 6, 12, 24)) },
    { "swin-b", "Swin", .also = "swin-base swin_b Swin-B", .params = 88e6, .flops = 15.4e9,
      .norm_cost = 5, CFG(224, 7, 128, 4, 4, 0.5, DEPTHS(2, 2, 18, 2), HEADS(4, 8, 16, 32)) },
    { "swin-b-384", "Swin", .params = 88e6, .flops = 47.0e9, .norm_cost = 5,
      CFG(384, 12, 128, 4, 4, 0.5, DEPTHS(2, 2, 18, 2), HEADS(4, 8, 16, 32)) },
    { "swin-t-ip102", "Swin", .params = 27.6e6, .flops = 4.5e9, .norm_cost = 5 },
    { "swin-mini", "Swin", .norm_cost = 5,
      CFG(64, 4, 64, 3, 3, 0.1, DEPTHS(2, 2, 2), HEADS(2, 4, 8)) },
    { 0 },
};

/* ---- members ---- */

#define AT(member) offsetof(tp_swin_cfg, member)
static const tp_model_member members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE, .least = 4,
      .most = MAX_SIDE },
    { "depths", TP_MEMBER_INTS, .at = AT(depths), .count = TP_SWIN_MAX_STAGES, .length = AT(stages),
      .least = 1, .most = TP_SWIN_MAX_BLOCKS },
    { "heads", TP_MEMBER_INTS, .at = AT(heads), .count = TP_SWIN_MAX_STAGES, .length = AT(stages),
      .least = 1, .most = MAX_WIDTH },
    { "classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS, .least = 1,
      .most = MAX_WIDTH },
    { "dim", TP_MEMBER_INT64, .at = AT(dim), .least = 1, .most = MAX_WIDTH },
    { "window", TP_MEMBER_INT64, .at = AT(window), .least = 1, .most = MAX_WINDOW },
    { "mlp_ratio", TP_MEMBER_REAL, .at = AT(mlp_ratio) },
    { "drop_path", TP_MEMBER_RATE, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { "ape", TP_MEMBER_FLAG, .at = AT(ape) },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- checks ---- */

static void check_sizes(const tp_swin_cfg *c, char *buf, size_t size)
{
    if (c->image[0] % 4 || c->image[1] % 4)
        snprintf(buf, size, "images are %lld x %lld pixels: sides must be multiples of 4",
                 (long long)c->image[0], (long long)c->image[1]);
    else if (c->dim > MAX_WIDTH >> c->stages)
        snprintf(buf, size, "the width is %lld, not at most %d", (long long)c->dim,
                 MAX_WIDTH >> c->stages);
    else if (blocks_of(c) > TP_SWIN_MAX_BLOCKS)
        snprintf(buf, size, "the model has %d blocks, not at most %d", blocks_of(c),
                 TP_SWIN_MAX_BLOCKS);
}

static void check_stage(const tp_swin_cfg *c, int i, char *buf, size_t size)
{
    const stage s = stage_of(c, i);
    const long long H = s.map[0], W = s.map[1];
    if (s.dim % c->heads[i])
        snprintf(buf, size, "stage %d: the width %lld does not divide into %d heads", i,
                 (long long)s.dim, c->heads[i]);
    else if (!tp__is_ratio(c->mlp_ratio, s.dim, MAX_WIDTH))
        snprintf(buf, size, "stage %d: an MLP ratio of %g gives a hidden width of %g", i,
                 c->mlp_ratio, c->mlp_ratio * (double)s.dim);
    else if (s.window < 1 || H % s.window || W % s.window)
        snprintf(buf, size,
                 "stage %d: a map of %lld x %lld does not divide into windows of %lld: choose "
                 "another image size or window",
                 i, H, W, (long long)s.window);
    else if (i + 1 < c->stages && (H % 2 || W % 2))
        snprintf(buf, size,
                 "stage %d: a map of %lld x %lld does not divide into cells of 2 x 2: choose "
                 "another image size",
                 i, H, W);
}

static bool model_check(const void *cfg, char *why, size_t size)
{
    const tp_swin_cfg *c = cfg;
    if (!tp__check_members(members, c, why, size)) return false;
    check_sizes(c, why, size);
    for (int i = 0; i < c->stages && !why[0]; i++) check_stage(c, i, why, size);
    return !why[0];
}

/* ---- attention ---- */

static void attn_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_swin_attn *m = module;
    const tp_swin_attn_cfg *c = cfg;
    int64_t w[2] = { c->window[0], c->window[1] }, dim = c->dim;
    int heads = c->heads;
    if (heads < 1 || dim < 1 || dim % heads || w[0] < 1 || w[1] < 1) {
        tp_params_raise(P, TP_E_VALUE,
                        "window attention %s: a width of %lld in %d heads with a window of %lld x "
                        "%lld is impossible",
                        name, (long long)dim, heads, (long long)w[0], (long long)w[1]);
        dim = heads = 1;
        w[0] = w[1] = 1;
    }
    const tp_shape table = TP_SHAPE((2 * w[0] - 1) * (2 * w[1] - 1), heads);
    *m = (tp_swin_attn){ .path = tp_push(P, name), .heads = heads, .window = { w[0], w[1] } };
    m->table = tp_param(P, "relative_position_bias_table", table,
                        (tp_init){ TP_INIT_NORMAL, 0.02, 0.0 }, 0);
    tp_linear_init(P, &m->qkv, "qkv", dim, 3 * dim, true);
    tp_linear_init(P, &m->proj, "proj", dim, dim, true);
    tp_pop(P);
}

/* Unshifted windows of any sides. */
static tp_tensor rectangles(tp_tape *T, const tp_swin_attn *m, tp_tensor q, tp_tensor k,
                            tp_tensor v, const int64_t map[2])
{
    const tp_window_attn_cfg cfg = { .heads = m->heads,
                                     .height = map[0],
                                     .width = map[1],
                                     .window = { m->window[0], m->window[1] } };
    const tp_window_in in = { .q = q, .k = k, .v = v, .table = m->table };
    if (tp_ok(T) && (map[0] % m->window[0] || map[1] % m->window[1]))
        tp_raise(T, TP_E_SHAPE, "a map of %lld x %lld does not divide into windows of %lld x %lld",
                 (long long)map[0], (long long)map[1], (long long)m->window[0],
                 (long long)m->window[1]);
    return tp_window_attention_2d(T, in, cfg);
}

static tp_tensor attn_forward(tp_tape *T, const void *module, void *with, tp_tensor map)
{
    const tp_swin_attn *m = module;
    const int64_t shift = *(int64_t *)with;
    const bool square = m->window[0] == m->window[1];
    const int64_t size[2] = { tp_dim(map, 1), tp_dim(map, 2) };
    const tp_lsla_attn_cfg cfg = { .heads = m->heads,
                                   .height = size[0],
                                   .width = size[1],
                                   .window = m->window[0],
                                   .shift = shift };
    tp_enter(T, m->path);
    if (!square && shift != 0)
        tp_raise(T, TP_E_VALUE, "windows of %lld x %lld cannot be shifted: only squares can",
                 (long long)m->window[0], (long long)m->window[1]);
    const tp_tensor x = tp__tokens(T, map);
    const tp_tensor q = tp_linear_part(T, &m->qkv, x, 0, 3),
                    k = tp_linear_part(T, &m->qkv, x, 1, 3);
    const tp_tensor v = tp_linear_part(T, &m->qkv, x, 2, 3);
    const tp_tensor y = square ? tp_lsla_attention(T, q, k, v, TP_NONE, m->table, TP_NONE, cfg)
                               : rectangles(T, m, q, k, v, size);
    const tp_tensor z = tp_linear_forward(T, &m->proj, y);
    return tp_leave(T, tp_reshape(T, z, tp_shape_of(map)));
}

/* ---- block ---- */

static void block_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_swin_block *m = module;
    const tp_swin_block_cfg *c = cfg;
    const int64_t side = c->map[0] < c->map[1] ? c->map[0] : c->map[1];
    const int64_t window = c->window < side ? c->window : side;
    *m = (tp_swin_block){ .path = tp_push(P, name),
                          .window = c->window,
                          .shift = c->shift,
                          .drop_path = c->drop_path,
                          .recompute = c->recompute };
    tp_layernorm_init(P, &m->norm1, "norm1", c->dim, 1e-5);
    attn_init(
        P, &m->attn, "attn",
        &(tp_swin_attn_cfg){ .dim = c->dim, .window = { window, window }, .heads = c->heads });
    tp_layernorm_init(P, &m->norm2, "norm2", c->dim, 1e-5);
    tp_mlp_init(P, &m->mlp, "mlp.fc1", "mlp.fc2", c->dim, tp__hidden(c->mlp_ratio, c->dim),
                TP_ACT_GELU, 0.0);
    tp_pop(P);
}

static tp_tensor attend(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_swin_block *m = self;
    const int64_t w = m->attn.window[0];
    int64_t shift = tp_dim(x, 1) > w && tp_dim(x, 2) > w ? m->shift : 0;
    const tp_tensor a = tp_layernorm_forward(T, &m->norm1, x);
    const tp_tensor y = attn_forward(T, &m->attn, &shift, a);
    return tp_add(T, x, tp_drop_path(T, y, m->drop_path));
}

static tp_tensor run_block(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_swin_block *m = self;
    tp_enter(T, m->path);
    if (!tp__fits_windows(T, x, m->window, m->attn.window[0])) return tp_leave(T, TP_NONE);
    const tp_tensor y =
        m->recompute == TP_RECOMPUTE_ATTENTION ? tp_checkpoint(T, attend, m, x) : attend(T, m, x);
    return tp_leave(T, tp__feed_forward(T, &m->norm2, &m->mlp, y, m->drop_path));
}

static tp_tensor block_forward(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_swin_block *m = module;
    (void)with;
    return m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint(T, run_block, m, x)
                                              : run_block(T, m, x);
}

/* ---- merging ---- */

static void merge_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_swin_merge *m = module;
    const int64_t dim = *(const int64_t *)cfg;
    m->path = tp_push(P, name);
    tp_layernorm_init(P, &m->norm, "norm", 4 * dim, 1e-5);
    tp_linear_init(P, &m->reduction, "reduction", 4 * dim, 2 * dim, false);
    tp_pop(P);
}

static tp_tensor merge_forward(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_swin_merge *m = module;
    (void)with;
    const int64_t B = tp_dim(x, 0), H = tp_dim(x, 1), W = tp_dim(x, 2), D = tp_dim(x, 3);
    tp_enter(T, m->path);
    if (tp_ok(T) && (H % 2 || W % 2))
        tp_raise(T, TP_E_SHAPE, "a map of %lld x %lld does not divide into cells of 2 x 2",
                 (long long)H, (long long)W);
    /* [B,H/2,row,W/2,column,D] -> [B,H/2,W/2,column,row,D] */
    tp_tensor y = tp_reshape(T, x, TP_SHAPE(B, H / 2, 2, W / 2, 2, D));
    y = tp_permute(T, y, TP_SHAPE(0, 1, 3, 4, 2, 5));
    y = tp_reshape(T, y, TP_SHAPE(B, H / 2, W / 2, 4 * D));
    return tp_leave(T, tp_linear_forward(T, &m->reduction, tp_layernorm_forward(T, &m->norm, y)));
}

/* ---- model ---- */

/* Declares stage i, whose blocks begin at block[first]; returns the first of the next stage. */
static int init_stage(tp_params *P, tp_swin *m, int i, int first)
{
    const tp_swin_cfg *c = &m->cfg;
    const stage s = stage_of(c, i);
    char name[32];
    snprintf(name, sizeof name, "layers.%d", i);
    tp_push(P, name);
    for (int j = 0; j < c->depths[i]; j++) {
        const tp_swin_block_cfg b = { .map = { s.map[0], s.map[1] },
                                      .dim = s.dim,
                                      .window = c->window,
                                      .shift = j % 2 ? c->window / 2 : 0,
                                      .heads = c->heads[i],
                                      .mlp_ratio = c->mlp_ratio,
                                      .drop_path =
                                          tp__drop_rate(c->drop_path, first + j, blocks_of(c)),
                                      .recompute = c->recompute };
        snprintf(name, sizeof name, "blocks.%d", j);
        block_init(P, &m->block[first + j], name, &b);
    }
    if (i + 1 < c->stages) merge_init(P, &m->merge[i], "downsample", &s.dim);
    tp_pop(P);
    return first + c->depths[i];
}

static void model_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_swin *m = module;
    const tp_swin_cfg *c = cfg;
    char why[256];
    bool convolution = false;
    *m = (tp_swin){ .params = P, .cfg = *c };
    if (!model_check(c, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "Swin: %s", why);
        return;
    }
    const stage one = stage_of(c, 0), last = stage_of(c, c->stages - 1);
    m->path = tp_push(P, name);
    tp_params_init_rule(P, tp__usual_init, &convolution);
    tp_conv_norm_init(P, &m->embed, "patch_embed",
                      (tp_conv_norm_cfg){ .in = 3, .out = c->dim, .kernel = 4, .stride = 4 });
    if (c->ape)
        m->ape = tp_param(P, "absolute_pos_embed", TP_SHAPE(1, one.map[0] * one.map[1], c->dim),
                          (tp_init){ TP_INIT_NORMAL, 0.02, 0.0 }, 0);
    for (int i = 0, first = 0; i < c->stages; i++) first = init_stage(P, m, i, first);
    tp_layernorm_init(P, &m->norm, "norm", last.dim, 1e-5);
    tp_linear_init(P, &m->head, "head", last.dim, c->classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

/* x [B,H,W,D] with the position embedding. */
static tp_tensor placed(tp_tape *T, const tp_swin *m, tp_tensor x)
{
    if (!tp_given(m->ape)) return x;
    const tp_shape s = tp_shape_of(x);
    if (tp_ok(T) && s.dim[1] * s.dim[2] != tp_dim(m->ape, 1))
        tp_raise(
            T, TP_E_SHAPE,
            "there are %lld x %lld patches, but positions for %lld: declare the model for this "
            "image size and load the weights with tp_net_load",
            (long long)s.dim[1], (long long)s.dim[2], (long long)tp_dim(m->ape, 1));
    const tp_tensor y = tp_add(T, tp__tokens(T, x), tp_cast(T, m->ape, tp_dtype_of(x)));
    return tp_reshape(T, y, s);
}

static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor images)
{
    const tp_swin *m = module;
    (void)state;
    const tp_swin_cfg *c = &m->cfg;
    const tp_swin_block *block = m->block;
    tp_enter(T, m->path);
    tp__check_images(T, m->params, images);
    tp_tensor x = placed(T, m, tp_conv_norm_forward(T, &m->embed, images));
    for (int i = 0; i < c->stages && tp_ok(T); i++) {
        for (int j = 0; j < c->depths[i] && tp_ok(T); j++) x = block_forward(T, block++, NULL, x);
        if (i + 1 < c->stages) x = merge_forward(T, &m->merge[i], NULL, x);
    }
    x = tp_mean(T, tp__tokens(T, tp_layernorm_forward(T, &m->norm, x)), 1);
    return tp_leave(T, tp_linear_forward(T, &m->head, x));
}

/* ---- weights for another image size ----
 *
 * Tables of relative positions [(2w-1)^2,H] are resized where windows differ. The position
 * embedding [1,tokens,D] has a row for each patch; the file's patches form a square or a map of the
 * same proportions. */

static bool is_embedding(const char *name)
{
    return tp_ends_in(name, "absolute_pos_embed");
}

static bool resizes_to(const char *name, const tp_shape *here, const tp_shape *there)
{
    tp__grid p;
    if (is_embedding(name))
        return here->ndim == 3 && there->ndim == 3 && there->dim[0] == 1 && there->dim[1] > 0 &&
               here->dim[2] == there->dim[2];
    return strstr(name, "relative_position_bias_table") && tp__relative_table(here, there, &p);
}

/* Finds the map of n patches, if known. */
static bool map_of(const stage *here, int64_t n, int64_t map[2])
{
    const double scale = sqrt((double)n / (double)(here->map[0] * here->map[1]));
    map[0] = map[1] = tp__root(n);
    if (map[0] > 0) return true;
    for (int i = 0; i < 2; i++) map[i] = llround((double)here->map[i] * scale);
    return map[0] * map[1] == n;
}

/* Finds the grids in the file and here. P refuses an unknown grid in the file. */
static bool find_grid(tp_params *P, const tp_swin *m, const tp_file *F, const tp_param_info *it,
                      const tp_file_tensor *t, tp__grid *p)
{
    *p = (tp__grid){ .axes = 2, .inner = it->shape.dim[it->shape.ndim - 1] };
    if (!is_embedding(it->name)) return tp__relative_table(&it->shape, &t->shape, p);
    const stage s = stage_of(&m->cfg, 0);
    memcpy(p->to, s.map, sizeof s.map);
    return map_of(&s, t->shape.dim[1], p->from) ||
           tp_params_refuse(
               P, TP_E_SHAPE,
               "%s: %s has positions of %lld patches, which are neither a square nor a "
               "map of the proportions of %lld x %lld",
               tp_file_path(F), it->name, (long long)t->shape.dim[1], (long long)s.map[0],
               (long long)s.map[1]);
}

/* Loads resized parameters or, unless `load`, only checks that it can. */
static bool visit_resized(tp_params *P, const tp_swin *m, tp_file *F, bool load)
{
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const tp_file_tensor *t = tp_file_find(F, it.name);
        tp__grid p;
        if (!t || tp__equal_shapes(&t->shape, &it.shape) ||
            !resizes_to(it.name, &it.shape, &t->shape))
            continue;
        if (!find_grid(P, m, F, &it, t, &p)) return false;
        if (load) tp__load_positions(P, F, &it, t, &p);
        if (!tp_params_ok(P)) return false;
    }
    return true;
}

static bool model_load(tp_params *P, const void *m, tp_file *F)
{
    const tp_load_opts o = { .convert = true, .resizes = resizes_to };
    return tp_params_ok(P) && visit_resized(P, m, F, false) && tp_params_read(P, F, "", &o) &&
           visit_resized(P, m, F, true);
}

/* Windows may differ, since loading resizes their tables. */
static bool model_same(const void *one, const void *other)
{
    const tp_swin_cfg *a = one, *b = other;
    return a->dim == b->dim && a->stages == b->stages && a->mlp_ratio == b->mlp_ratio &&
           memcmp(a->depths, b->depths, sizeof a->depths) == 0 &&
           memcmp(a->heads, b->heads, sizeof a->heads) == 0 && a->ape == b->ape;
}

/* ---- the model ---- */

/* We use the official names; these are torchvision's, where patch mergings are separate stages. */
static const tp_spelling spellings[] = {
    { "features.0.0.", "patch_embed.proj." },
    { "features.0.2.", "patch_embed.norm." },
    { "features.1.", "layers.0.blocks." },
    { "features.2.", "layers.0.downsample." },
    { "features.3.", "layers.1.blocks." },
    { "features.4.", "layers.1.downsample." },
    { "features.5.", "layers.2.blocks." },
    { "features.6.", "layers.2.downsample." },
    { "features.7.", "layers.3.blocks." },
    { ".mlp.0.", ".mlp.fc1." },
    { ".mlp.3.", ".mlp.fc2." },
    { 0 },
};

/* Since 0.9, timm merges patches at a stage's beginning; the official code at the end. */
static const tp_spelling timm[] = {
    { "layers.1.downsample.", "layers.0.downsample." },
    { "layers.2.downsample.", "layers.1.downsample." },
    { "layers.3.downsample.", "layers.2.downsample." },
    { "head.fc.", "head." },
    { 0 },
};

static const tp_model_part parts[] = {
    { "attn", sizeof(tp_swin_attn), attn_init, attn_forward },
    { "block", sizeof(tp_swin_block), block_init, block_forward },
    { "merge", sizeof(tp_swin_merge), merge_init, merge_forward },
    { 0 },
};

const tp_model tp_model_swin = {
    .name = "swin",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_swin_cfg),
    .size = sizeof(tp_swin),
    .presets = presets,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .same = model_same,
    .load = model_load,
    .resizes = "tables of positions are resized where windows differ, and position embeddings",
    .resizes_to = resizes_to,
    .head = "head.weight",
    .spellings = spellings,
    .dialect = { "layers.3.downsample.norm.weight", timm },
    .parts = parts,
};
