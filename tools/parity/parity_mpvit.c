/* parity_mpvit.c - kinds of MPViT: attention and encoder of a path, patches, residual convolution, stage,
 * models. */
#include <tapegrad/mpvit.h>

#include "parity_window.h"

/* ---- epsilons and momentum ---- */

static void set_norm(parity *p, tp_batchnorm_m *m)
{
    m->eps = par_num(p, "eps_bn", 1e-5);
    m->momentum = par_num(p, "momentum_bn", 0.1);
}

static void set_embed(parity *p, tp_mpvit_embed *m)
{
    for (int i = 0; i < m->paths; i++) set_norm(p, &m->step[i].bn);
}

static void set_residual(parity *p, tp_mpvit_residual *m)
{
    set_norm(p, &m->conv1.bn);
    set_norm(p, &m->norm);
    set_norm(p, &m->conv2.bn);
}

static void set_encoder(parity *p, tp_mpvit_encoder *m)
{
    for (int j = 0; j < m->layers; j++)
        m->block[j].norm1.eps = m->block[j].norm2.eps = par_num(p, "eps_norm", 1e-6);
}

static void set_stage(parity *p, tp_mpvit_stage *m)
{
    for (int i = 0; i < m->paths; i++) set_encoder(p, &m->encoder[i]);
    set_residual(p, &m->residual);
    set_norm(p, &m->aggregate.bn);
}

/* ---- parts ---- */

/* Images "input.NAME" [B,C,H,W], whose sides are the key `size`. */
static tp_tensor take_map(parity *p, const char *name)
{
    int64_t n;
    const int64_t *size = par_sizes(p, "size", 1, &n);
    const tp_tensor x = par_images(p, name);
    if (par_ok(p) && n > 0 && (n != 2 || size[0] != tp_dim(x, 1) || size[1] != tp_dim(x, 2)))
        par_fail(p, "metadata size: input.%s is %lld x %lld", name, (long long)tp_dim(x, 1),
                 (long long)tp_dim(x, 2));
    return x;
}

static tp_mpvit_encoder_cfg encoder_cfg(parity *p, const char *dim)
{
    tp_mpvit_encoder_cfg c = { .dim = par_size(p, dim, PAR_NEEDED),
                               .layers = (int)par_size(p, "layers", PAR_NEEDED),
                               .heads = (int)par_size(p, "heads", 8),
                               .kernels = window_kernels(p) };
    par_fixed(p, "class_token", 0.0);
    c.mlp_ratio = window_ratio(p, c.dim);
    return c;
}

static void declare_encoder(parity *p, void *self)
{
    const tp_mpvit_encoder_cfg c = encoder_cfg(p, "dim");
    if (p->failed) return;
    tp_part_init(p->P, &tp_model_mpvit, "encoder", self, "", &c);
    if (par_ok(p)) set_encoder(p, self);
}

/* tokens -> [B,C,H,W] */
static void run_encoder(parity *p, void *self)
{
    const tp_tensor y = tp_part_forward(p->T, &tp_model_mpvit, "encoder", self, NULL,
                                        par_take_map(p, "height", "width"));
    par_output(p, "y", par_channels_first(p->T, y));
}

static void declare_embed(parity *p, void *self)
{
    const tp_mpvit_embed_cfg c = { .dim = par_size(p, "dim", PAR_NEEDED),
                                   .paths = (int)par_size(p, "paths", PAR_NEEDED),
                                   .stride = par_int(p, "first_stride", PAR_NEEDED, 1, 2) };
    if (p->failed) return;
    tp_part_init(p->P, &tp_model_mpvit, "embed", self, "", &c);
    if (par_ok(p)) set_embed(p, self);
}

/* The paths [B,C,H*W], joined along channels. */
static void run_embed(parity *p, void *self)
{
    const tp_mpvit_embed *m = self;
    tp_tensor y[TP_MPVIT_PATHS];
    const tp_tensor x = take_map(p, "x");
    if (!par_ok(p)) return;
    tp_part_forward(p->T, &tp_model_mpvit, "embed", m, y, x);
    for (int i = 0; i < m->paths; i++) {
        const tp_tensor c = par_channels_first(p->T, y[i]);
        y[i] = tp_reshape(p->T, c, TP_SHAPE(tp_dim(c, 0), tp_dim(c, 1), -1));
    }
    par_output(p, "y", tp_concat_n(p->T, 1, m->paths, y));
}

static void declare_residual(parity *p, void *self)
{
    const int64_t dim = par_size(p, "dim", PAR_NEEDED);
    tp_part_init(p->P, &tp_model_mpvit, "residual", self, "", &dim);
    set_residual(p, self);
}

static void run_residual(parity *p, void *self)
{
    const tp_tensor y =
        tp_part_forward(p->T, &tp_model_mpvit, "residual", self, NULL, take_map(p, "x"));
    par_output(p, "y", par_channels_first(p->T, y));
}

static void declare_stage(parity *p, void *self)
{
    const tp_mpvit_stage_cfg c = { .paths = (int)par_size(p, "paths", PAR_NEEDED),
                                   .out = par_size(p, "dim_out", PAR_NEEDED),
                                   .encoder = encoder_cfg(p, "dim_in") };
    if (p->failed) return;
    tp_part_init(p->P, &tp_model_mpvit, "stage", self, "", &c);
    if (par_ok(p)) set_stage(p, self);
}

static void run_stage(parity *p, void *self)
{
    const tp_mpvit_stage *m = self;
    tp_tensor x[TP_MPVIT_PATHS] = { TP_NONE };
    for (int i = 0; i < m->paths && par_ok(p); i++) x[i] = take_map(p, par_name(p, "x%d", i));
    if (!par_ok(p)) return;
    const tp_tensor y = tp_part_forward(p->T, &tp_model_mpvit, "stage", m, x, x[0]);
    par_output(p, "y", par_channels_first(p->T, y));
}

/* ---- models ---- */

static void declare_model(parity *p, void *self)
{
    tp_mpvit *m = self;
    tp_mpvit_cfg c = { .classes = par_size(p, "classes", PAR_NEEDED),
                       .heads = (int)par_size(p, "heads", 8),
                       .kernels = window_kernels(p) };
    int stages = TP_MPVIT_STAGES;
    par_image_size(p, "image", c.image);
    par_stages(p, "dims", 1, TP_MPVIT_STAGES, c.dim, &stages);
    par_stage_ints(p, "paths", 1, TP_MPVIT_STAGES, c.paths, &stages);
    par_stage_ints(p, "layers", 1, TP_MPVIT_STAGES, c.layers, &stages);
    par_stage_ints(p, "mlp_ratios", 1, TP_MPVIT_STAGES, c.mlp_ratio, &stages);
    par_fixed(p, "class_token", 0.0);
    if (p->failed) return;
    tp_model_mpvit.init(p->P, m, "", &c);
    if (!par_ok(p)) return;
    for (int i = 0; i < 2; i++) set_norm(p, &m->stem.bn[i]);
    for (int s = 0; s < TP_MPVIT_STAGES; s++) {
        set_embed(p, &m->embed[s]);
        set_stage(p, &m->stage[s]);
    }
}

static void run_model(parity *p, void *self)
{
    par_output(p, "y", tp_model_mpvit.forward(p->T, self, NULL, par_images(p, "image")));
}

/* no_bf16: statistics over few pixels exceed the limits in bf16. */
/* clang-format off */
const par_kind par_mpvit_kinds[] = {
    { PAR_MODULE("window_baselines.mpvit_factor_attention", window_attn, window_declare_attn, window_run_attn) },
    { PAR_MODULE("window_baselines.mpvit_encoder", tp_mpvit_encoder, declare_encoder, run_encoder) },
    { PAR_MODULE("window_baselines.mpvit_patch_embed", tp_mpvit_embed, declare_embed, run_embed) },
    { PAR_MODULE("window_baselines.mpvit_resblock", tp_mpvit_residual, declare_residual, run_residual) },
    { PAR_MODULE("window_baselines.mpvit_stage", tp_mpvit_stage, declare_stage, run_stage) },
    { PAR_MODULE("window_baselines.mpvit_model", tp_mpvit, declare_model, run_model), .no_bf16 = true },
    { .kind = NULL },
};
/* clang-format on */
