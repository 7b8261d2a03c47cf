/* parity_lsla.c - kinds of ViT-LSLA: the attention on windows and on maps, block, stem,
 * downsampling, models. */
#include <tapegrad/vit_lsla.h>

#include "parity_images.h"
#include "parity_lsla.h"

/* o with the changes of the metadata. */
static tp_lsla_cfg options(parity *p, tp_lsla_cfg o)
{
    static const char *const variants[] = { "qxx", "qxv", "qkv", "qxx_np", NULL };
    static const char *const scales[] = { "dynamic", "fixed", NULL };

    o.variant = (tp_lsla_variant)par_word(p, "variant", (int)o.variant, variants);
    o.fixed_scale = par_word(p, "scale", o.fixed_scale, scales) == 1;
    o.raw_scores = !par_flag(p, "inner", !o.raw_scores);
    o.raw_weights = !par_flag(p, "outer", !o.raw_weights);
    o.mask_outer = par_flag(p, "mask_outer", o.mask_outer);
    return o;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- attention ---- */

typedef struct attention {
    tp_lsla_attn_m m;
    int64_t shift;
} attention;

static void declare_attention(parity *p, attention *a, const char *name, int64_t window)
{
    tp_lsla_part_cfg c = { .window = window, .attn = options(p, (tp_lsla_cfg){ 0 }) };
    c.dim = par_size(p, "dim", PAR_NEEDED);
    c.heads = (int)par_size(p, "heads", PAR_NEEDED);
    if (!p->failed) tp_part_init(p->P, &tp_model_vit_lsla, "attn", &a->m, name, &c);
}

/* map [B,H,W,D]; the output has the shape of x. */
static void attend(parity *p, attention *a, tp_tensor x, tp_tensor map)
{
    if (!par_ok(p)) return;
    const tp_tensor y = tp_part_forward(p->T, &tp_model_vit_lsla, "attn", &a->m, &a->shift, map);
    par_output(p, "y", tp_reshape(p->T, y, tp_shape_of(x)));
    if (!par_wants(p, "scores") && !par_wants(p, "attn_before_outer") &&
        !par_wants(p, "attn_after_outer"))
        return;
    const tp_lsla_maps z = tp_lsla_attn_maps(p->T, &a->m, map, a->shift);
    par_output(p, "scores", z.scores);
    par_output(p, "attn_before_outer", z.before);
    par_output(p, "attn_after_outer", z.after);
}

static void declare_op(parity *p, void *self)
{
    const int64_t w = par_size(p, "window", PAR_NEEDED);
    par_same(p, "tokens_per_window", w * w);
    declare_attention(p, self, "", w);
}

/* Each of the windows [B,N,D] is a map of one window. */
static void run_op(parity *p, void *self)
{
    attention *a = self;
    const tp_tensor x = par_take(p, "x");

    if (!par_ok(p)) return;
    par_same(p, "windows", tp_dim(x, 0));
    const tp_shape map = TP_SHAPE(tp_dim(x, 0), a->m.window, a->m.window, tp_dim(x, 2));
    attend(p, a, x, tp_reshape(p->T, x, map));
}

/* If the map is no larger than a window, the window becomes the map's smaller side and is not
 * shifted. */
static void declare_window_op(parity *p, void *self)
{
    attention *a = self;
    const int64_t wanted = par_size(p, "window", PAR_NEEDED);
    const int64_t H = par_size(p, "height", PAR_NEEDED), W = par_size(p, "width", PAR_NEEDED);
    const int64_t shift = par_int(p, "shift", 0, 0, wanted - 1);

    a->shift = least(H, W) > wanted ? shift : 0;
    declare_attention(p, a, "attn", least(wanted, least(H, W)));
}

static void run_window_op(parity *p, void *self)
{
    const tp_tensor x = par_take(p, "x");

    if (!par_ok(p)) return;
    par_same(p, "height", tp_dim(x, 1));
    par_same(p, "width", tp_dim(x, 2));
    attend(p, self, x, x);
}

/* ---- parts ---- */

static void declare_block(parity *p, void *self)
{
    const int64_t window = par_size(p, "window", PAR_NEEDED);
    const tp_lsla_block_cfg c = { .map = { par_size(p, "height", PAR_NEEDED),
                                           par_size(p, "width", PAR_NEEDED) },
                                  .dim = par_size(p, "dim", PAR_NEEDED),
                                  .window = window,
                                  .shift = par_int(p, "shift", 0, 0, window - 1),
                                  .heads = (int)par_size(p, "heads", PAR_NEEDED),
                                  .mlp_ratio = par_num(p, "mlp_ratio", 2.0),
                                  .attn = options(p, (tp_lsla_cfg){ 0 }) };
    if (!(c.mlp_ratio * (double)c.dim >= 1.0 && c.mlp_ratio < 1e6))
        par_illegal(p, "metadata mlp_ratio: %g times %lld channels", c.mlp_ratio, (long long)c.dim);
    if (!p->failed) tp_part_init(p->P, &tp_model_vit_lsla, "block", self, "", &c);
}

static void run_block(parity *p, void *self)
{
    par_output_tokens(p, "y",
                      tp_part_forward(p->T, &tp_model_vit_lsla, "block", self, NULL,
                                      par_take_map(p, "height", "width")));
}

static void declare_stem(parity *p, void *self)
{
    const int64_t channels = par_size(p, "channels", PAR_NEEDED);
    tp_part_init(p->P, &tp_model_vit_lsla, "stem", self, "", &channels);
}

static void run_stem(parity *p, void *self)
{
    const tp_tensor y =
        tp_part_forward(p->T, &tp_model_vit_lsla, "stem", self, NULL, par_images(p, "x"));
    par_output(p, "y", par_channels_first(p->T, y));
}

static void declare_merge(parity *p, void *self)
{
    const int64_t dim = par_size(p, "dim_in", PAR_NEEDED);
    par_fixed(p, "dim_out", 2.0 * (double)dim);
    tp_part_init(p->P, &tp_model_vit_lsla, "merge", self, "", &dim);
}

static void run_merge(parity *p, void *self)
{
    par_output_tokens(p, "y",
                      tp_part_forward(p->T, &tp_model_vit_lsla, "merge", self, NULL,
                                      par_take_map(p, "height", "width")));
}

/* ---- models ---- */

/* Reads one whole number per stage; false if the key is absent. */
static bool stages(parity *p, const char *key, int to[TP_VIT_MAX_STAGES], int *n)
{
    int64_t count;
    const int64_t *x = par_sizes(p, key, 1, &count);

    if (count > TP_VIT_MAX_STAGES) {
        par_illegal(p, "metadata %s: the library has at most %d stages", key, TP_VIT_MAX_STAGES);
        return false;
    }
    for (int64_t i = 0; i < count; i++) to[i] = (int)x[i];
    if (count > 0) *n = (int)count;
    return count > 0;
}

static void declare_model(parity *p, void *self)
{
    int64_t image[2];
    tp_model_cfg of_table;

    par_image_size(p, "image", image);
    if (!par_model(p, &tp_model_vit_lsla, "vit_lsla", image, &of_table)) return;
    tp_vit_lsla_cfg c = *(const tp_vit_lsla_cfg *)&of_table.at;
    int heads = c.stages;
    c.classes = par_size(p, "classes", c.classes);
    stages(p, "depths", c.depths, &c.stages);
    if (stages(p, "heads", c.heads, &heads) && heads != c.stages)
        par_illegal(p, "metadata heads: %d numbers for %d stages", heads, c.stages);
    c.dim = par_size(p, "dim", c.dim);
    c.window = par_size(p, "window", c.window);
    c.mlp_ratio = par_num(p, "mlp_ratio", c.mlp_ratio);
    c.attn = options(p, c.attn);
    if (!p->failed) tp_model_vit_lsla.init(p->P, self, "", &c);
}

static void run_model(parity *p, void *self)
{
    par_output(p, "y", tp_model_vit_lsla.forward(p->T, self, NULL, par_images(p, "image")));
}

static void run_full(parity *p, void *self)
{
    par_classify(p, tp_model_vit_lsla.forward(p->T, self, NULL, par_images(p, "image")));
}

const par_kind par_lsla_kinds[] = {
    { PAR_MODULE("lsla.op", attention, declare_op, run_op) },
    { PAR_MODULE("lsla.window_op", attention, declare_window_op, run_window_op) },
    { PAR_MODULE("lsla.block", tp_lsla_block, declare_block, run_block) },
    { PAR_MODULE("lsla.stem", tp_lsla_stem, declare_stem, run_stem) },
    { PAR_MODULE("lsla.merge", tp_lsla_merge, declare_merge, run_merge) },
    { PAR_MODULE("lsla.model", tp_vit_lsla, declare_model, run_model) },
    { PAR_MODULE("lsla.full", tp_vit_lsla, declare_model, run_full), .large = true },
    { .kind = "lsla.lr_schedule", .run = lsla_run_schedule },
    { .kind = "lsla.mini_imagenet_split", .run = lsla_run_split },
    { .kind = "lsla.image_ops", .run = par_run_images },
    { .kind = "lsla.mixup_loss", .run = lsla_run_mixing, .no_bf16 = true },
    { .kind = NULL },
};
