/* parity_coat.c - kinds of CoaT-Lite: position encoding, factorised attention, block, patches, models. */
#include <stdlib.h>
#include <string.h>

#include "parity_window.h"

/* ---- what MPViT shares ---- */

/* The number that all of the text is; else -1. */
static int whole(const char *text)
{
    char *end;
    const long x = strtol(text, &end, 10);
    return end != text && !*end && x >= 0 && x < 1000 ? (int)x : -1;
}

tp_coat_kernels window_kernels(parity *p)
{
    tp_coat_kernels k = { 0 };
    const char *text = par_text(p, "crpe_window"), *key;
    json_t *object = par_json(p, "crpe_window"), *value;
    if (!text || !object) return (tp_coat_kernels)TP_COAT_PUBLISHED;
    json_object_foreach(object, key, value)
    {
        const bool fits = k.n < TP_COAT_KERNELS && json_is_integer(value);
        if (!fits || whole(key) < 0 || json_integer_value(value) < 1 ||
            json_integer_value(value) > 1000) {
            par_illegal(p,
                        "metadata crpe_window = '%.80s' is not at most %d kernels with their heads",
                        text, TP_COAT_KERNELS);
            return (tp_coat_kernels)TP_COAT_PUBLISHED;
        }
        k.kernel[k.n] = whole(key);
        k.heads[k.n++] = (int)json_integer_value(value);
    }
    json_object_clear(object);
    return k;
}

tp_tensor window_take_tokens(parity *p, tp_tensor *grid)
{
    const int64_t H = par_size(p, "height", PAR_NEEDED), W = par_size(p, "width", PAR_NEEDED);
    const tp_tensor x = par_take(p, "x");
    if (par_ok(p)) par_same(p, "class_token", tp_dim(x, 1) - H * W);
    *grid = tp_full(p->T, TP_F32, TP_SHAPE(H, W, 0), 0.0);
    return x;
}

void window_declare_attn(parity *p, void *self)
{
    window_attn *a = self;
    tp_coat_shared shared;
    tp_coat_shared_cfg s = { .crpe = "crpe", .dim = par_size(p, "dim", PAR_NEEDED) };
    tp_coat_attn_cfg c = { .dim = s.dim, .shared = &shared };
    c.heads = (int)par_size(p, "heads", PAR_NEEDED);
    s.kernels = window_kernels(p);
    if (p->failed) return;
    tp_part_init(p->P, &tp_model_coat, "shared", &shared, "", &s);
    if (par_ok(p)) tp_part_init(p->P, &tp_model_coat, "attn", &a->m, "", &c);
}

void window_run_attn(parity *p, void *self)
{
    const window_attn *a = self;
    tp_tensor grid;
    const tp_tensor x = window_take_tokens(p, &grid);
    par_output(p, "y", tp_part_forward(p->T, &tp_model_coat, "attn", &a->m, &grid, x));
}

/* ---- parts ---- */

static void declare_cpe(parity *p, void *self)
{
    const tp_coat_shared_cfg c = { .cpe = "",
                                   .dim = par_size(p, "dim", PAR_NEEDED),
                                   .kernels = { 1, { 1 }, { 1 } } };
    if (!p->failed) tp_part_init(p->P, &tp_model_coat, "shared", self, "", &c);
}

static void run_cpe(parity *p, void *self)
{
    tp_tensor grid;
    const tp_tensor x = window_take_tokens(p, &grid);
    par_output(p, "y", tp_part_forward(p->T, &tp_model_coat, "shared", self, &grid, x));
}

static void declare_block(parity *p, void *self)
{
    tp_coat_block *m = self;
    tp_coat_shared shared;
    tp_coat_block_cfg c = { .dim = par_size(p, "dim", PAR_NEEDED),
                            .heads = (int)par_size(p, "heads", PAR_NEEDED),
                            .shared = &shared };
    const tp_coat_shared_cfg s = {
        .cpe = "cpe", .crpe = "factoratt_crpe.crpe", .dim = c.dim, .kernels = window_kernels(p)
    };
    c.mlp_ratio = window_ratio(p, c.dim);
    if (p->failed) return;
    tp_part_init(p->P, &tp_model_coat, "shared", &shared, "", &s);
    if (!par_ok(p)) return;
    tp_part_init(p->P, &tp_model_coat, "block", m, "", &c);
    m->norm1.eps = m->norm2.eps = par_num(p, "eps_norm", 1e-6);
}

static void run_block(parity *p, void *self)
{
    tp_tensor grid;
    const tp_tensor x = window_take_tokens(p, &grid);
    par_output(p, "y", tp_part_forward(p->T, &tp_model_coat, "block", self, &grid, x));
}

static void declare_embed(parity *p, void *self)
{
    tp_conv_norm *m = self;
    const char *prefix = par_text(p, "param_prefix");
    const size_t n = prefix ? strlen(prefix) : 0;
    const int64_t patch = par_size(p, "patch", 2);
    const tp_conv_norm_cfg c = { .in = par_size(p, "dim_in", PAR_NEEDED),
                                 .out = par_size(p, "dim_out", PAR_NEEDED),
                                 .kernel = patch,
                                 .stride = patch };
    if (n > 0 && prefix[n - 1] != '.')
        par_fail(p, "metadata param_prefix = '%.40s' does not end with a dot", prefix);
    if (p->failed) return;
    tp_conv_norm_init(p->P, m, n ? par_name(p, "%.*s", (int)n - 1, prefix) : "", c);
    m->norm.eps = par_num(p, "eps_patch_norm", 1e-5);
}

/* images [B,C,H,W] -> tokens */
static void run_embed(parity *p, void *self)
{
    par_output_tokens(p, "y", tp_conv_norm_forward(p->T, self, par_images(p, "x")));
}

/* ---- models ---- */

/* The library declares the norms of all stages. */
void coat_leave_out_norms(parity *p, const tp_coat *m)
{
    int64_t n;
    const int64_t *has = par_sizes(p, "has_norm", 0, &n);
    if (n == 0) return;
    if (n != TP_COAT_STAGES || has[n - 1] != 1) {
        par_fail(p, "metadata has_norm: the library has %d stages, and the last has a norm",
                 TP_COAT_STAGES);
        return;
    }
    for (int s = 0; s < TP_COAT_STAGES && !p->failed; s++) {
        const bool stored = par_has(p, par_name(p, "param.norm%d.weight", s + 1));
        if (has[s] > 1 || (par_has_any(p, "param.") && has[s] != stored))
            par_fail(p, "metadata has_norm: stage %d has %sstored norm", s + 1,
                     stored ? "a " : "no ");
        if (has[s] == 0) p->dropped += 2 * tp_numel(m->norm[s].weight);
    }
}

static void set_eps(parity *p, tp_coat *m)
{
    const double eps = par_num(p, "eps_norm", 1e-6);
    for (int s = 0, b = 0; s < TP_COAT_STAGES; s++) {
        m->embed[s].norm.eps = par_num(p, "eps_patch_norm", 1e-5);
        m->norm[s].eps = eps;
        for (int j = 0; j < m->cfg.depths[s]; j++, b++)
            m->block[b].norm1.eps = m->block[b].norm2.eps = eps;
    }
}

/* Patches are fixed, and so is that each stage has a class token. */
static void check_fixed(parity *p)
{
    int64_t n;
    const int64_t *patch = par_sizes(p, "patch", 1, &n);
    par_fixed(p, "class_token", 1.0);
    if (n == 0) return;
    for (int s = 0; s < TP_COAT_STAGES; s++)
        if (n != TP_COAT_STAGES || patch[s] != (s ? 2 : 4)) {
            par_fail(p, "metadata patch: the library's patches are 4,2,2,2");
            return;
        }
}

static void declare_model(parity *p, void *self)
{
    tp_coat *m = self;
    tp_coat_cfg c = { .classes = par_size(p, "classes", PAR_NEEDED),
                      .heads = (int)par_size(p, "heads", 8),
                      .kernels = window_kernels(p) };
    int stages = TP_COAT_STAGES;
    par_image_size(p, "image", c.image);
    par_stages(p, "dims", 1, TP_COAT_STAGES, c.dim, &stages);
    par_stage_ints(p, "depths", 1, TP_COAT_STAGES, c.depths, &stages);
    par_stage_ints(p, "mlp_ratios", 1, TP_COAT_STAGES, c.mlp_ratio, &stages);
    check_fixed(p);
    if (p->failed) return;
    tp_model_coat.init(p->P, m, "", &c);
    if (!par_ok(p)) return;
    set_eps(p, m);
    coat_leave_out_norms(p, m);
}

static void run_model(parity *p, void *self)
{
    par_output(p, "y", tp_model_coat.forward(p->T, self, NULL, par_images(p, "image")));
}

/* clang-format off */
const par_kind par_coat_kinds[] = {
    { PAR_MODULE("window_baselines.coat_conv_pos_enc", tp_coat_shared, declare_cpe, run_cpe) },
    { PAR_MODULE("window_baselines.coat_factor_attention", window_attn, window_declare_attn, window_run_attn) },
    { PAR_MODULE("window_baselines.coat_block", tp_coat_block, declare_block, run_block) },
    { PAR_MODULE("window_baselines.coat_patch_embed", tp_conv_norm, declare_embed, run_embed) },
    { PAR_MODULE("window_baselines.coat_model", tp_coat, declare_model, run_model) },
    { .kind = NULL },
};
/* clang-format on */
