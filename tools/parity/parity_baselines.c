/* parity_baselines.c - kinds of the image baselines: ViT and DeiT, losses of distillation, tables of
 * positions, full models of the table, and the list of all kinds. */
#include "parity_baselines.h"

#include <string.h>

#include "parity_images.h"
#include "parity_lsla.h"
#include "parity_pvt.h"
#include "parity_resnet.h"

/* ---- what families share ---- */

void baseline_stages(parity *p, const char *key, int64_t least, int64_t x[4])
{
    int n = 4;
    par_stages(p, key, least, n, x, &n);
    for (int s = 0; s < 4 && p->failed; s++) x[s] = 1;
}

void baseline_ints(parity *p, const char *key, int least, int x[4])
{
    int64_t wide[4];
    baseline_stages(p, key, least, wide);
    for (int s = 0; s < 4; s++) x[s] = (int)wide[s];
}

void baseline_image(parity *p, int64_t image[2])
{
    int64_t n;
    const int64_t *side = par_sizes(p, "img", 1, &n);
    if (n < 1 || n > 2)
        par_illegal(p, "metadata img: %lld numbers are no size of images", (long long)n);
    for (int i = 0; i < 2; i++) image[i] = n < 1 ? 1 : side[i < n ? i : 0];
}

void baseline_maps(parity *p, const tp_tensor maps[4])
{
    for (int s = 0; s < 4 && par_ok(p); s++)
        par_output(p, par_name(p, "c%d", s + 2), par_channels_first(p->T, maps[s]));
}

/* ---- ViT ---- */

static void declare_attention(parity *p, void *self)
{
    static const char *const scales[] = { "head_dim**-0.5", NULL };
    tp_vit_attn_cfg c = { .dim = par_size(p, "dim", PAR_NEEDED) };
    c.heads = (int)par_size(p, "heads", PAR_NEEDED);
    par_word(p, "scale", 0, scales);
    tp_part_init(p->P, &tp_model_vit, "attn", self, "", &c);
}

static tp_tensor take_tokens(parity *p)
{
    const tp_tensor x = par_take(p, "x");
    if (par_ok(p)) par_same(p, "tokens", tp_dim(x, 1));
    return x;
}

static void attend(parity *p, void *self)
{
    par_output(p, "y", tp_part_forward(p->T, &tp_model_vit, "attn", self, NULL, take_tokens(p)));
}

static tp_vit_cfg read_block(parity *p)
{
    return (tp_vit_cfg){ .dim = par_size(p, "dim", PAR_NEEDED),
                         .heads = (int)par_size(p, "heads", PAR_NEEDED),
                         .mlp_ratio = par_size(p, "mlp_ratio", 4) };
}

static void set_eps(parity *p, tp_vit_block *m)
{
    m->norm1.eps = m->norm2.eps = par_num(p, "eps_norm", 1e-6);
}

static void declare_block(parity *p, void *self)
{
    const tp_vit_cfg c = read_block(p);
    tp_part_init(p->P, &tp_model_vit, "block", self, "", &(tp_vit_block_cfg){ .model = &c });
    set_eps(p, self);
}

static void run_block(parity *p, void *self)
{
    par_output(p, "y", tp_part_forward(p->T, &tp_model_vit, "block", self, NULL, take_tokens(p)));
}

static void declare_vit(parity *p, void *self)
{
    tp_vit *m = self;
    tp_vit_cfg c = read_block(p);
    baseline_image(p, c.image);
    c.patch = par_size(p, "patch", PAR_NEEDED);
    c.blocks = (int)par_size(p, "depth", PAR_NEEDED);
    c.classes = par_size(p, "num_classes", PAR_NEEDED);
    c.distilled = par_flag(p, "distilled", p->kind->variant == 1);
    if (p->failed) return;
    tp_model_vit.init(p->P, m, "", &c);
    for (int i = 0; par_ok(p) && i < c.blocks; i++) set_eps(p, &m->block[i]);
    m->norm.eps = par_num(p, "eps_norm", 1e-6);
}

/* The outputs that the metadata name: of both heads, and their mean. */
static void run_vit(parity *p, void *self)
{
    const tp_vit *m = self;
    const char *at = NULL, *name;
    tp_tensor dist;
    const tp_tensor images = par_images(p, "x");
    if (!par_given(p, "outputs")) {
        par_output(p, "logits", tp_model_vit.forward(p->T, m, NULL, images));
        return;
    }
    const tp_tensor cls = tp_model_vit.heads(p->T, m, images, &dist);
    while ((name = par_next_name(p, "outputs", &at)) && par_ok(p)) {
        if (strcmp(name, "logits_cls") == 0)
            par_output(p, name, cls);
        else if (strcmp(name, "logits_dist") == 0)
            par_output(p, name, dist);
        else if (strcmp(name, "logits_eval") == 0)
            par_output(p, name, tp_model_vit.forward(p->T, m, NULL, images));
        else
            par_fail(p, "metadata outputs: a ViT has no '%.40s'", name);
    }
}

/* ---- losses of distillation ---- */

static void run_distillation(parity *p, void *self)
{
    static const char *const types[] = { "hard", "soft", NULL };
    const bool soft_targets = par_flag(p, "soft_targets", false);
    const double smoothing = par_num(p, "label_smoothing", 0.0);
    const tp_distill_cfg c = { .soft = par_word(p, "distill_type", PAR_NEEDED, types) == 1,
                               .alpha = par_num(p, "alpha", PAR_NEEDED),
                               .tau = par_num(p, "tau", 1.0) };
    const tp_tensor cls = par_take(p, "logits_cls"), dist = par_take(p, "logits_dist");
    const tp_tensor teacher = par_tensor(p, "teacher_logits");
    const tp_tensor target = par_tensor(p, soft_targets ? "targets" : "labels");
    (void)self;
    if (!par_ok(p)) return;
    const tp_tensor base =
        tp_cross_entropy_smooth(p->T, cls, target, soft_targets ? 0.0 : smoothing, TP_MEAN);
    const tp_tensor loss = tp_distill_loss(p->T, base, dist, teacher, c);
    par_output(p, "loss_value", tp_reshape(p->T, loss, TP_SHAPE(1)));
}

/* ---- tables of positions ---- */

typedef struct positions {
    tp_tensor table;
    int64_t from[2], to[2], extra;
} positions;

static void read_grid(parity *p, const char *key, int64_t grid[2])
{
    int64_t n;
    const int64_t *side = par_sizes(p, key, 1, &n);
    if (n != 2) par_illegal(p, "metadata %s: a grid has two sides", key);
    for (int i = 0; i < 2; i++) grid[i] = n == 2 ? side[i] : 1;
}

static void declare_positions(parity *p, void *self)
{
    positions *m = self;
    const tp_shape s = par_shape(p, "param.pos_embed");
    read_grid(p, "old_grid", m->from);
    read_grid(p, "new_grid", m->to);
    m->extra = par_count(p, "extra", 0);
    par_fixed(p, "cubic_a", -0.75);
    if (s.ndim != 3) par_fail(p, "param.pos_embed must be [1,rows,channels]");
    if (!p->failed) m->table = tp_param(p->P, "pos_embed", s, (tp_init){ .kind = TP_INIT_ZERO }, 0);
}

static void resize_positions(parity *p, void *self)
{
    static const char *const modes[] = { "bilinear", "bicubic", NULL };
    const positions *m = self;
    const tp_interpolation mode = (tp_interpolation)par_word(p, "interpolation", PAR_NEEDED, modes);
    const tp_tensor y = tp_resize_positions(p->T, m->table, m->extra, m->from, m->to, mode);
    par_output(p, "pos_embed", tp_cast(p->T, y, p->o->compute));
}

/* ---- full models ---- */

static void declare_full(parity *p, void *self)
{
    const char *name = par_model_name(p);
    const tp_model_row *row = name ? tp_model_find(name) : NULL;
    tp_model_cfg c;
    char why[256];
    tp_common_cfg o;
    if (!row || tp_model_of(row)->input != TP_IMAGES ||
        !tp_model_preset(&c, row->name, why, sizeof why)) {
        par_illegal(p, "metadata preset: the library has no '%.40s'", name ? name : "");
        return;
    }
    o = tp_model_get(&c);
    par_image_size(p, "x", o.image);
    o.drop_path = 0.0;
    tp_model_set(&c, &o);
    par_same(p, "distilled", c.model == &tp_model_vit && ((const tp_vit_cfg *)&c.at)->distilled);
    par_same(p, "logits_train_stored", par_has(p, "output.logits_train"));
    par_declare_full(p, self, &c);
}

static void run_full(parity *p, void *self)
{
    const tp_tensor images = par_images(p, "x");
    if (par_ok(p)) par_same(p, "batch", tp_dim(images, 0));
    par_run_full(p, self, images);
}

/* ---- kinds ---- */

/* no_bf16: batch statistics over few values, ReLU and losses that cancel exceed the limits in bf16. */
#define KIND(name, type, declare, forward)                                                         \
    PAR_MODULE("image_baselines." name, type, declare, forward)
/* clang-format off */
const par_kind par_baseline_kinds[] = {
    { KIND("vit_attention", tp_vit_attn, declare_attention, attend) },
    { KIND("vit_block", tp_vit_block, declare_block, run_block) },
    { KIND("vit_model", tp_vit, declare_vit, run_vit) },
    { KIND("deit_model", tp_vit, declare_vit, run_vit), .variant = 1 },
    { KIND("distill_loss", char, NULL, run_distillation), .no_bf16 = true },
    { KIND("position_interpolation", positions, declare_positions, resize_positions) },
    { KIND("resnet_basic", tp_resnet_block, resnet_declare_block, resnet_run_block), .no_bf16 = true },
    { KIND("resnet_bottleneck", tp_resnet_block, resnet_declare_block, resnet_run_block), .variant = 1, .no_bf16 = true },
    { KIND("resnet_model", tp_resnet, resnet_declare, resnet_run), .no_bf16 = true },
    { KIND("resnet_features", tp_resnet, resnet_declare, resnet_run_features), .variant = 1, .no_bf16 = true },
    { KIND("pvt_sra", tp_pvt_attn, pvt_declare_attention, pvt_attend) },
    { KIND("pvt_block", tp_pvt_block, pvt_declare_block, pvt_run_block) },
    { KIND("pvt2_block", tp_pvt_block, pvt_declare_block, pvt_run_block), .variant = PVT_SECOND, .no_bf16 = true },
    { KIND("pvt_model", tp_pvt, pvt_declare, pvt_run) },
    { KIND("pvt2_model", tp_pvt, pvt_declare, pvt_run), .variant = PVT_SECOND, .no_bf16 = true },
    { KIND("pvt_features", tp_pvt, pvt_declare, pvt_run_features), .variant = PVT_HEADLESS },
    { KIND("pvt2_features", tp_pvt, pvt_declare, pvt_run_features), .variant = PVT_SECOND | PVT_HEADLESS },
    { KIND("full", par_full, declare_full, run_full), .large = true, .no_bf16 = true },
    { .kind = "image_baselines.eval_metrics", .run = par_run_metrics },
    { .kind = "image_baselines.image_ops", .run = par_run_images },
    { .kind = "image_baselines.mixup_cutmix", .run = lsla_run_mixing, .no_bf16 = true },
    { .kind = NULL },
};
/* clang-format on */
