/* vit.c - ViT and DeiT: patches of images to classes.
 *
 *     x      = [class token; distillation token; norm(conv(images))] + positions
 *     x      = x + attn(norm1(x));  x = x + mlp(norm2(x))           for each block
 *     logits = head(norm(x)[0]), head_dist(norm(x)[1])
 *
 * The norm of the patches is a variant, as is a head of the mean of norm(x). Only rows read by the
 * heads pass the last norm. */
#include <stdio.h>
#include <tapegrad/vit.h>

#include "model_inner.h"
#include "parts.h"

enum { MAX_SIZE = 1 << 20, MAX_SIDE = 1 << 16, MAX_RATIO = 64 }; /* so that products fit */

/* ---- presets ---- */

/* The image baselines of the papers, then small ones. */
/* clang-format off */
#define CFG(side, p, width, h, n, dist) \
    .cfg = &(const tp_vit_cfg){ .image = { side, side }, .classes = 1000, .patch = p, \
                                .dim = width, .heads = h, .blocks = n, .mlp_ratio = 4, \
                                .distilled = dist }
/* clang-format on */
static const tp_model_row presets[] = {
    { "deit-t", "DeiT", .also = "deit-tiny deit_t DeiT-T DeiT-T/16", .params = 5.7e6,
      .flops = 1.3e9, CFG(224, 16, 192, 3, 12, false) },
    { "deit-s", "DeiT", .also = "deit-small deit_s DeiT-S DeiT-S/16", .params = 22.1e6,
      .flops = 4.6e9, CFG(224, 16, 384, 6, 12, false) },
    { "deit-b", "DeiT", .also = "deit-base deit_b DeiT-B DeiT-B/16", .params = 86.6e6,
      .flops = 17.6e9, CFG(224, 16, 768, 12, 12, false) },
    { "deit-b-384", "DeiT", .also = "deit-base-384", .params = 86.9e6, .flops = 55.5e9 },
    { "deit-t-distilled", "DeiT", .also = "deit-tiny-distilled deit_t_distilled DeiT-T-distilled",
      CFG(224, 16, 192, 3, 12, true) },
    { "deit-s-distilled", "DeiT", .also = "deit-small-distilled deit_s_distilled DeiT-S-distilled",
      CFG(224, 16, 384, 6, 12, true) },
    { "deit-b-distilled", "DeiT", .also = "deit-base-distilled deit_b_distilled DeiT-B-distilled",
      CFG(224, 16, 768, 12, 12, true) },
    { "vit-b", "ViT", .also = "vit-base vit_b ViT-B ViT-B/16", .params = 86.6e6, .flops = 17.6e9,
      CFG(224, 16, 768, 12, 12, false) },
    { "vit-l", "ViT", .also = "vit-large vit_l ViT-L ViT-L/16", .params = 307e6, .flops = 61.6e9,
      CFG(224, 16, 1024, 16, 24, false) },
    { "vit-b-384", "ViT", .also = "vit-base-384", .params = 86.9e6, .flops = 55.5e9 },
    { "vit-l-384", "ViT", .also = "vit-large-384", .params = 307e6, .flops = 191.1e9 },
    { "deit-mini", "DeiT", CFG(64, 8, 128, 4, 9, false) },
    { "deit-mini-distilled", "DeiT", CFG(64, 8, 128, 4, 9, true) },
    { 0 },
};

/* ---- members ---- */

#define AT(member) offsetof(tp_vit_cfg, member)
static const tp_model_member members[] = {
    { "image", TP_MEMBER_SIDES, .at = AT(image), .common = TP_COMMON_IMAGE, .least = 1,
      .most = MAX_SIDE },
    { "num_classes", TP_MEMBER_INT64, .at = AT(classes), .common = TP_COMMON_OUTPUTS, .least = 1,
      .most = MAX_SIZE },
    { "patch", TP_MEMBER_INT64, .at = AT(patch), .least = 1, .most = MAX_SIDE },
    { "dim", TP_MEMBER_INT64, .at = AT(dim), .least = 1, .most = MAX_SIZE },
    { "heads", TP_MEMBER_INT, .at = AT(heads), .least = 1, .most = MAX_SIZE },
    { "depth", TP_MEMBER_INT, .at = AT(blocks), .least = 1, .most = TP_VIT_BLOCKS },
    { "mlp_ratio", TP_MEMBER_INT64, .at = AT(mlp_ratio), .least = 1, .most = MAX_RATIO },
    { "distilled", TP_MEMBER_FLAG, .at = AT(distilled) },
    { "patch_norm", TP_MEMBER_FLAG, .at = AT(patch_norm), .optional = true },
    { "avg_pool", TP_MEMBER_FLAG, .at = AT(avg_pool), .optional = true },
    { "dropout", TP_MEMBER_RATE, .at = AT(dropout), .common = TP_COMMON_DROPOUT },
    { "drop_path", TP_MEMBER_RATE, .at = AT(drop_path), .common = TP_COMMON_DROP_PATH },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- checks ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    const tp_vit_cfg *c = cfg;
    const long long D = (long long)c->dim, H = (long long)c->image[0], W = (long long)c->image[1];
    if (!tp__check_members(members, c, why, size)) return false;
    if (D % c->heads)
        snprintf(why, size, "the width %lld does not divide into %d heads", D, c->heads);
    else if (c->patch > H || c->patch > W)
        snprintf(why, size, "patches of side %lld leave nothing of %lld x %lld pixels",
                 (long long)c->patch, H, W);
    else if (c->avg_pool && c->distilled)
        snprintf(why, size, "avg_pool: both heads of a distilled model read tokens of their own");
    return !why[0];
}

/* ---- attention ---- */

static void attn_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_vit_attn *m = module;
    const tp_vit_attn_cfg *c = cfg;
    const int64_t dim = c->dim;
    *m = (tp_vit_attn){ .path = tp_push(P, name), .heads = c->heads, .dropout = c->dropout };
    tp_linear_init(P, &m->qkv, "qkv", dim, 3 * dim, true);
    tp_linear_init(P, &m->proj, "proj", dim, dim, true);
    tp_pop(P);
}

static tp_tensor attn_forward(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_vit_attn *m = module;
    const tp_tensor residual = with ? *(tp_tensor *)with : TP_NONE;
    tp_enter(T, m->path);
    const tp_tensor q = tp_linear_part(T, &m->qkv, x, 0, 3),
                    k = tp_linear_part(T, &m->qkv, x, 1, 3);
    const tp_tensor v = tp_linear_part(T, &m->qkv, x, 2, 3);
    const tp_attn_cfg cfg = { .heads = m->heads };
    const tp_tensor y = tp_attention(T, q, k, v, TP_NONE, TP_NONE, cfg);
    return tp_leave(T, tp__linear_add(T, &m->proj, y, residual, m->dropout));
}

/* ---- block ---- */

static void block_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_vit_block *m = module;
    const tp_vit_block_cfg *b = cfg;
    const tp_vit_cfg *c = b->model;
    const tp_vit_attn_cfg attn = { .dim = c->dim, .heads = c->heads, .dropout = c->dropout };
    const int64_t D = c->dim;
    *m = (tp_vit_block){ .path = tp_push(P, name),
                         .drop_path = b->drop_path,
                         .recompute = c->recompute };
    tp_layernorm_init(P, &m->norm1, "norm1", D, 1e-6);
    attn_init(P, &m->attn, "attn", &attn);
    tp_layernorm_init(P, &m->norm2, "norm2", D, 1e-6);
    tp_mlp_init(P, &m->mlp, "mlp.fc1", "mlp.fc2", D, c->mlp_ratio * D, TP_ACT_GELU, c->dropout);
    tp_pop(P);
}

/* x + attn(norm1(x)) */
static tp_tensor attend(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_vit_block *m = self;
    const tp_tensor u = tp_layernorm_forward(T, &m->norm1, x);
    tp_tensor to = tp__residual(T, x, m->drop_path);
    return tp__add_branch(T, x, attn_forward(T, &m->attn, &to, u), m->drop_path);
}

static tp_tensor run_block(tp_tape *T, const void *self, tp_tensor x)
{
    const tp_vit_block *m = self;
    tp_enter(T, m->path);
    x = m->recompute == TP_RECOMPUTE_ATTENTION ? tp_checkpoint(T, attend, m, x) : attend(T, m, x);
    return tp_leave(T, tp__feed_forward(T, &m->norm2, &m->mlp, x, m->drop_path));
}

static tp_tensor block_forward(tp_tape *T, const void *module, void *with, tp_tensor x)
{
    const tp_vit_block *m = module;
    (void)with;
    return m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint(T, run_block, m, x)
                                              : run_block(T, m, x);
}

/* ---- model ---- */

static const tp_init normal = { TP_INIT_NORMAL, 0.02, 0.0 };

static tp_init init_rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    (void)env;
    if (s.ndim == 2) return normal;
    return s.ndim == 1 && tp_ends_in(name, ".bias") && !tp_ends_in(name, "patch_embed.proj.bias")
               ? (tp_init){ .kind = TP_INIT_ZERO }
               : dflt;
}

static void init_tokens(tp_params *P, tp_vit *m)
{
    const tp_vit_cfg *c = &m->cfg;
    const int64_t N = c->image[0] / c->patch * (c->image[1] / c->patch);
    m->cls_token = tp_param(P, "cls_token", TP_SHAPE(1, 1, c->dim), normal, 0);
    if (c->distilled) m->dist_token = tp_param(P, "dist_token", TP_SHAPE(1, 1, c->dim), normal, 0);
    m->pos_embed = tp_param(P, "pos_embed", TP_SHAPE(1, N + 1 + c->distilled, c->dim), normal, 0);
}

static void model_init(tp_params *P, void *module, const char *name, const void *cfg)
{
    tp_vit *m = module;
    const tp_vit_cfg *c = cfg;
    const int64_t p = c->patch, D = c->dim;
    char text[256];
    *m = (tp_vit){ .params = P, .cfg = *c };
    if (!model_check(c, text, sizeof text)) {
        tp_params_raise(P, TP_E_VALUE, "ViT: %s", text);
        return;
    }
    m->path = tp_push(P, name);
    tp_params_init_rule(P, init_rule, NULL);
    init_tokens(P, m);
    tp_conv2d_init(P, &m->patch_embed, "patch_embed.proj", 3, D, p, true,
                   (tp_conv_cfg){ .stride = { p, p } });
    if (c->patch_norm) tp_layernorm_init(P, &m->patch_norm, "patch_embed.norm", D, 1e-6);
    for (int i = 0; i < c->blocks; i++) {
        snprintf(text, sizeof text, "blocks.%d", i);
        const tp_vit_block_cfg b = { c, tp__drop_rate(c->drop_path, i, c->blocks) };
        block_init(P, &m->block[i], text, &b);
    }
    tp_layernorm_init(P, &m->norm, "norm", D, 1e-6);
    tp_linear_init(P, &m->head, "head", D, c->classes, true);
    if (c->distilled) tp_linear_init(P, &m->head_dist, "head_dist", D, c->classes, true);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

static tp__table table_of(const tp_vit *m)
{
    const tp_vit_cfg *c = &m->cfg;
    return (tp__table){ .name = "pos_embed",
                        .table = m->pos_embed,
                        .extra = 1 + c->distilled,
                        .grid = { c->image[0] / c->patch, c->image[1] / c->patch },
                        .mode = TP_INTERPOLATE_BICUBIC };
}

/* Images to tokens [B,g+N,D] with their positions. */
static tp_tensor embed(tp_tape *T, const tp_vit *m, tp_tensor images)
{
    const tp_vit_cfg *c = &m->cfg;
    const tp__table table = table_of(m);
    const tp_tensor map = tp_conv2d_forward(T, &m->patch_embed, images);
    const int64_t B = tp_dim(map, 0), h = tp_dim(map, 1), w = tp_dim(map, 2);
    if (!tp_ok(T)) return TP_NONE;
    tp_tensor x = tp_reshape(T, map, TP_SHAPE(B, h * w, c->dim));
    if (c->patch_norm) x = tp_layernorm_forward(T, &m->patch_norm, x);
    if (c->distilled) x = tp__prepend(T, m->dist_token, x);
    x = tp__prepend(T, m->cls_token, x);
    x = tp_add(T, x, tp_cast(T, tp__positions(T, &table, h, w), tp_dtype_of(x)));
    return tp_dropout(T, x, c->dropout);
}

/* Row `token` of x [B,g,D] through a head -> [B,classes] */
static tp_tensor decide(tp_tape *T, const tp_linear_m *head, tp_tensor x, int token)
{
    const tp_shape s = TP_SHAPE(tp_dim(x, 0), tp_dim(x, 2));
    return tp_linear_forward(T, head, tp_reshape(T, tp_slice(T, x, 1, token, 1), s));
}

static tp_tensor model_heads(tp_tape *T, const void *module, tp_tensor images, tp_tensor *dist)
{
    const tp_vit *m = module;
    tp_tensor both[2] = { TP_NONE, TP_NONE };
    tp_enter(T, m->path);
    if (tp__check_images(T, m->params, images)) {
        tp_tensor x = embed(T, m, images);
        for (int i = 0; i < m->cfg.blocks; i++) x = block_forward(T, &m->block[i], NULL, x);
        if (!m->cfg.avg_pool) x = tp_slice(T, x, 1, 0, 1 + m->cfg.distilled);
        x = tp_layernorm_forward(T, &m->norm, x);
        if (m->cfg.avg_pool) x = tp_mean(T, x, TP_KEEP(1));
        both[0] = decide(T, &m->head, x, 0);
        if (m->cfg.distilled) both[1] = decide(T, &m->head_dist, x, 1);
    }
    tp_leave_n(T, 1 + m->cfg.distilled, both);
    *dist = both[m->cfg.distilled];
    return both[0];
}

/* The mean of both heads, if there are two. */
static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor images)
{
    const tp_vit *m = module;
    tp_tensor dist;
    const tp_tensor cls = model_heads(T, m, images, &dist);
    (void)state;
    return m->cfg.distilled ? tp_scale(T, tp_add(T, cls, dist), 0.5) : cls;
}

/* ---- weights for another image size, and the constant ---- */

static bool model_same(const void *one, const void *other)
{
    const tp_vit_cfg *a = one, *b = other;
    return a->patch == b->patch && a->dim == b->dim && a->heads == b->heads &&
           a->blocks == b->blocks && a->mlp_ratio == b->mlp_ratio && a->distilled == b->distilled &&
           a->patch_norm == b->patch_norm;
}

static bool model_resizes(const char *name, const tp_shape *here, const tp_shape *there)
{
    return tp_ends_in(name, "pos_embed") && tp__table_resizes(here, there);
}

static bool model_load(tp_params *P, const void *module, tp_file *F)
{
    const tp_vit *m = module;
    const tp_load_opts o = { .convert = true, .resizes = model_resizes };
    const tp__table table = table_of(m);
    return tp__check_table(P, F, &table) && tp_params_read(P, F, "", &o) &&
           tp__load_table(P, F, &table);
}

/* We use DeiT's and timm's names; these are torchvision's. */
static const tp_spelling spellings[] = {
    { "class_token", "cls_token" },
    { "conv_proj.", "patch_embed.proj." },
    { "encoder.pos_embedding", "pos_embed" },
    { "encoder.layers.encoder_layer_", "blocks." },
    { ".ln_1.", ".norm1." },
    { ".ln_2.", ".norm2." },
    { ".self_attention.in_proj_", ".attn.qkv." },
    { ".self_attention.out_proj.", ".attn.proj." },
    { ".mlp.linear_1.", ".mlp.fc1." },
    { ".mlp.linear_2.", ".mlp.fc2." },
    { ".mlp.0.", ".mlp.fc1." },
    { ".mlp.3.", ".mlp.fc2." },
    { "encoder.ln.", "norm." },
    { "heads.head.", "head." },
    { 0 },
};

static const tp_model_part parts[] = {
    { "attn", sizeof(tp_vit_attn), attn_init, attn_forward },
    { "block", sizeof(tp_vit_block), block_init, block_forward },
    { 0 },
};

const tp_model tp_model_vit = {
    .name = "vit",
    .input = TP_IMAGES,
    .cfg_size = sizeof(tp_vit_cfg),
    .size = sizeof(tp_vit),
    .presets = presets,
    .sided = true,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .heads = model_heads,
    .same = model_same,
    .load = model_load,
    .resizes = "the table of positions is resized",
    .resizes_to = model_resizes,
    .head = "head.weight",
    .spellings = spellings,
    .parts = parts,
};

/* ---- distillation ---- */

tp_tensor tp_distill_loss(tp_tape *T, tp_tensor base, tp_tensor dist, tp_tensor teacher,
                          tp_distill_cfg cfg)
{
    if (!(cfg.alpha >= 0.0 && cfg.alpha <= 1.0) || (cfg.soft && !(cfg.tau > 0.0)))
        return tp_raise(T, TP_E_VALUE,
                        "distillation: alpha is %g and tau %g, not 0 to 1 and above 0", cfg.alpha,
                        cfg.tau);
    const tp_tensor seen = tp_detach(T, teacher);
    tp_tensor loss;
    if (cfg.soft) {
        const tp_tensor p = tp_log_softmax(T, tp_scale(T, dist, 1.0 / cfg.tau));
        const tp_tensor t = tp_log_softmax(T, tp_scale(T, seen, 1.0 / cfg.tau));
        loss = tp_scale(T, tp_kl_div(T, p, t, true, TP_MEAN), cfg.tau * cfg.tau);
    } else {
        loss = tp_cross_entropy(T, dist, tp_argmax(T, seen, 1), TP_MEAN);
    }
    return tp_add(T, tp_scale(T, base, 1.0 - cfg.alpha), tp_scale(T, loss, cfg.alpha));
}
