/* parity_swin.c - kinds of Swin: attention in windows, shifted and not, block, merging, patches, models. */
#include <tapegrad/swin.h>

#include "parity_window.h"

/* ---- attention ---- */

typedef struct attention {
    tp_swin_attn m;
    int64_t map[2], shift; /* of the shifted map whose windows the batch holds; map 0: none */
} attention;

static void declare_attention(parity *p, void *self)
{
    attention *a = self;
    tp_swin_attn_cfg c;
    int sides = 2;
    par_stages(p, "window", 1, 2, c.window, &sides);
    c.dim = par_size(p, "dim", PAR_NEEDED);
    c.heads = (int)par_size(p, "heads", PAR_NEEDED);
    if (par_flag(p, "use_mask", p->kind->variant)) {
        a->map[0] = par_size(p, "height", PAR_NEEDED);
        a->map[1] = par_size(p, "width", PAR_NEEDED);
        a->shift = par_int(p, "shift", PAR_NEEDED, 1, 1 << 16);
        par_fixed(p, "mask_value", -100.0);
    }
    if (!p->failed) tp_part_init(p->P, &tp_model_swin, "attn", &a->m, "", &c);
}

/* Windows [B*n,w,w,D] of a rolled map -> the map [B,H,W,D], and back. */
static tp_tensor joined(tp_tape *T, const attention *a, tp_tensor x)
{
    const int64_t w = a->m.window[0], H = a->map[0], W = a->map[1], D = tp_dim(x, 2);
    x = tp_reshape(T, x, TP_SHAPE(-1, H / w, W / w, w, w, D));
    x = tp_reshape(T, tp_permute(T, x, TP_SHAPE(0, 1, 3, 2, 4, 5)), TP_SHAPE(-1, H, W, D));
    return tp_roll(T, tp_roll(T, x, 1, a->shift), 2, a->shift);
}

static tp_tensor divided(tp_tape *T, const attention *a, tp_tensor x)
{
    const int64_t w = a->m.window[0], H = a->map[0], W = a->map[1], D = tp_dim(x, 3);
    x = tp_roll(T, tp_roll(T, x, 1, -a->shift), 2, -a->shift);
    x = tp_reshape(T, x, TP_SHAPE(-1, H / w, w, W / w, w, D));
    return tp_reshape(T, tp_permute(T, x, TP_SHAPE(0, 1, 3, 2, 4, 5)), TP_SHAPE(-1, w * w, D));
}

/* x: windows [n,tokens,D]. */
static void attend(parity *p, void *self)
{
    attention *a = self;
    const tp_tensor x = par_take(p, "x");
    const int64_t *w = a->m.window;
    tp_tape *T = p->T;

    if (!par_ok(p)) return;
    par_same(p, "windows", tp_dim(x, 0));
    if (a->map[0] == 0) {
        const tp_shape map = TP_SHAPE(tp_dim(x, 0), w[0], w[1], tp_dim(x, 2));
        const tp_tensor y =
            tp_part_forward(T, &tp_model_swin, "attn", &a->m, &a->shift, tp_reshape(T, x, map));
        par_output(p, "y", tp_reshape(T, y, tp_shape_of(x)));
        return;
    }
    const int64_t each = a->map[0] / w[0] * (a->map[1] / w[1]);
    if (w[0] != w[1] || a->map[0] % w[0] || a->map[1] % w[1] || tp_dim(x, 0) % each) {
        par_fail(p, "%lld windows of %lld x %lld do not make maps of %lld x %lld",
                 (long long)tp_dim(x, 0), (long long)w[0], (long long)w[1], (long long)a->map[0],
                 (long long)a->map[1]);
        return;
    }
    const tp_tensor y =
        tp_part_forward(T, &tp_model_swin, "attn", &a->m, &a->shift, joined(T, a, x));
    par_output(p, "y", divided(T, a, y));
}

/* ---- parts ---- */

static void set_eps(parity *p, tp_swin_block *m)
{
    m->norm1.eps = m->norm2.eps = par_num(p, "eps_norm", 1e-5);
}

static void declare_block(parity *p, void *self)
{
    tp_swin_block *m = self;
    tp_swin_block_cfg c = { .map = { par_size(p, "height", PAR_NEEDED),
                                     par_size(p, "width", PAR_NEEDED) },
                            .dim = par_size(p, "dim", PAR_NEEDED),
                            .window = par_size(p, "window_argument", PAR_NEEDED),
                            .heads = (int)par_size(p, "heads", PAR_NEEDED) };
    c.shift = par_int(p, "shift_argument", 0, 0, c.window - 1);
    c.mlp_ratio = window_ratio(p, c.dim);
    if (p->failed) return;
    tp_part_init(p->P, &tp_model_swin, "block", m, "", &c);
    set_eps(p, m);
    const int64_t used = m->attn.window[0];
    par_same(p, "window_used", used);
    par_same(p, "shift_used", c.map[0] > used && c.map[1] > used ? c.shift : 0);
}

static void run_block(parity *p, void *self)
{
    par_output_tokens(p, "y",
                      tp_part_forward(p->T, &tp_model_swin, "block", self, NULL,
                                      par_take_map(p, "height", "width")));
}

static void declare_merge(parity *p, void *self)
{
    tp_swin_merge *m = self;
    const int64_t dim = par_size(p, "dim", PAR_NEEDED);
    tp_part_init(p->P, &tp_model_swin, "merge", m, "", &dim);
    m->norm.eps = par_num(p, "eps_norm", 1e-5);
}

static void run_merge(parity *p, void *self)
{
    par_output_tokens(p, "y",
                      tp_part_forward(p->T, &tp_model_swin, "merge", self, NULL,
                                      par_take_map(p, "height", "width")));
}

static void declare_embed(parity *p, void *self)
{
    const tp_conv_norm_cfg c = {
        .in = 3, .out = par_size(p, "dim", PAR_NEEDED), .kernel = 4, .stride = 4
    };
    tp_conv_norm *m = self;
    par_fixed(p, "patch", 4.0);
    tp_conv_norm_init(p->P, m, "", c);
    m->norm.eps = par_num(p, "eps_norm", 1e-5);
}

static void run_embed(parity *p, void *self)
{
    par_output_tokens(p, "y", tp_conv_norm_forward(p->T, self, par_images(p, "image")));
}

/* ---- models ---- */

static void declare_model(parity *p, void *self)
{
    tp_swin *m = self;
    tp_swin_cfg c = { .classes = par_size(p, "classes", PAR_NEEDED),
                      .dim = par_size(p, "dim", PAR_NEEDED),
                      .window = par_size(p, "window", PAR_NEEDED),
                      .mlp_ratio = par_num(p, "mlp_ratio", 4.0),
                      .ape = par_flag(p, "ape", false) };
    par_image_size(p, "image", c.image);
    par_stage_ints(p, "depths", 1, TP_SWIN_MAX_STAGES, c.depths, &c.stages);
    par_stage_ints(p, "heads", 1, TP_SWIN_MAX_STAGES, c.heads, &c.stages);
    par_fixed(p, "patch", 4.0);
    if (p->failed) return;
    tp_model_swin.init(p->P, m, "", &c);
    m->embed.norm.eps = m->norm.eps = par_num(p, "eps_norm", 1e-5);
    for (int i = 0, b = 0; i < c.stages && par_ok(p); i++) {
        for (int j = 0; j < c.depths[i]; j++) set_eps(p, &m->block[b++]);
        m->merge[i].norm.eps = m->norm.eps;
    }
}

static void run_model(parity *p, void *self)
{
    par_output(p, "y", tp_model_swin.forward(p->T, self, NULL, par_images(p, "image")));
}

/* clang-format off */
const par_kind par_swin_kinds[] = {
    { PAR_MODULE("window_baselines.swin_attention", attention, declare_attention, attend) },
    { PAR_MODULE("window_baselines.swin_mask", attention, declare_attention, attend), .variant = 1 },
    { PAR_MODULE("window_baselines.swin_block", tp_swin_block, declare_block, run_block) },
    { PAR_MODULE("window_baselines.swin_merge", tp_swin_merge, declare_merge, run_merge) },
    { PAR_MODULE("window_baselines.swin_patch_embed", tp_conv_norm, declare_embed, run_embed) },
    { PAR_MODULE("window_baselines.swin_model", tp_swin, declare_model, run_model) },
    { .kind = NULL },
};
/* clang-format on */
