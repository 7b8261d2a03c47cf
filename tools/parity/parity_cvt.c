/* parity_cvt.c - kinds of CvT, CvT* and CvT*-LS: options, whole models, and the table of kinds. */
#include <stdlib.h>

#include "parity_cvt.h"

/* ---- options ---- */

tp_cvt_cfg cvt_like(int family)
{
    static const char *const names[] = { "cvt-13-224", "cvt_star-13-224", "cvt_ls-13-224" };
    tp_model_cfg c;
    char why[256];
    tp_model_preset(&c, names[family], why, sizeof why);
    return *(const tp_cvt_cfg *)&c.at;
}

enum { PROJ_NO, PROJ_YES, PROJ_AUTO };
static const char *const projections[] = { "0", "1", "auto", NULL };

/* auto: a single head has no output projection. */
static int projection(parity *p)
{
    return par_word(p, "out_proj", -1, projections);
}

void cvt_options(parity *p, tp_cvt_cfg *c)
{
    static const char *const scales[] = { "head_dim**-0.5", "dim**-0.5", NULL };
    static const char *const activations[] = { "gelu", "quick_gelu", NULL };
    static const char *const classes[] = { "linear", "raw", NULL };
    const int proj = projection(p);

    c->drop_path = 0.0;
    c->wide_scale = par_word(p, "scale", c->wide_scale, scales) == 1;
    c->quick_gelu = par_word(p, "activation", c->quick_gelu, activations) == 1;
    c->raw_class = par_word(p, "cls_proj", c->raw_class, classes) == 1;
    c->raw_kv = !par_flag(p, "dual_ln", !c->raw_kv);
    if (proj >= 0) c->single_proj = proj == PROJ_YES;
}

/* The library always projects the output of several heads. */
static void drop_projection(parity *p, tp_cvt_attn *m)
{
    if (projection(p) != PROJ_NO || !tp_given(m->proj.weight)) return;
    p->dropped += tp_numel(m->proj.weight) + tp_numel(m->proj.bias);
    m->proj = (tp_linear_m){ 0 };
}

void cvt_adjust(parity *p, tp_cvt_attn *m)
{
    tp_cvt_proj *const each[] = { &m->q, &m->k, &m->v };

    for (int i = 0; i < 3; i++) each[i]->bn.eps = par_num(p, "bn_eps", 1e-5);
    m->dual_ln.local.eps = m->dual_ln.global.eps = par_num(p, "ln_eps", 1e-5);
    par_fixed(p, "ws_eps", 1e-5);
    if (par_ok(p)) drop_projection(p, m);
}

/* ---- models ---- */

/* Reads one whole number per stage; leaves x unchanged if the key is absent. */
static void stages(parity *p, const char *key, int64_t least, int64_t x[TP_CVT_STAGES])
{
    int64_t n;
    const int64_t *given = par_sizes(p, key, least, &n);

    if (n != 0 && n != TP_CVT_STAGES)
        par_fail(p, "metadata %s has %lld values: the models have %d stages", key, (long long)n,
                 TP_CVT_STAGES);
    for (int s = 0; s < TP_CVT_STAGES && n == TP_CVT_STAGES; s++) x[s] = given[s];
}

static void set_stages(parity *p, tp_cvt_cfg *c)
{
    int64_t heads[TP_CVT_STAGES], blocks[TP_CVT_STAGES];

    for (int s = 0; s < TP_CVT_STAGES; s++) {
        heads[s] = c->heads[s];
        blocks[s] = c->blocks[s];
    }
    stages(p, "dims", 1, c->dim);
    stages(p, "heads", 1, heads);
    stages(p, "depth", 0, blocks);
    if (c->long_short) {
        stages(p, "r", 1, c->rank);
        stages(p, "w", 1, c->window);
    }
    for (int s = 0; s < TP_CVT_STAGES; s++) {
        c->heads[s] = (int)heads[s];
        c->blocks[s] = (int)blocks[s];
    }
}

/* Reads kernel, stride and padding, such as "7/4/2", and moves *s to the next stage. */
static bool read_patch(const char **s, bool last, int64_t x[3])
{
    for (int k = 0; k < 3; k++) {
        const char end = k < 2 ? '/' : last ? '\0' : ',';
        char *rest;
        x[k] = strtoll(*s, &rest, 10);
        if (rest == *s || *rest != end || x[k] < (k < 2) || x[k] > 1 << 16) return false;
        *s = rest + (end != '\0');
    }
    return true;
}

/* The model's kernels are fixed; strides and paddings do not change its parameters. */
static void set_patches(parity *p, tp_cvt *m)
{
    const char *text = par_text(p, "patch"), *s = text;

    for (int i = 0; s && i < TP_CVT_STAGES; i++) {
        tp_conv2d_m *conv = &m->embed[i].proj;
        const long long kernel = tp_dim(conv->weight, 2);
        int64_t x[3];
        if (!read_patch(&s, i == TP_CVT_STAGES - 1, x) || x[0] != kernel) {
            par_fail(p, "metadata patch = '%.40s': stage %d must be %lld/STRIDE/PADDING", text, i,
                     kernel);
            return;
        }
        conv->cfg.stride[0] = conv->cfg.stride[1] = x[1];
        conv->cfg.pad[0] = conv->cfg.pad[1] = x[2];
    }
}

/* Sets what the configuration lacks: strides of keys and values, epsilons. */
static void adjust_model(parity *p, tp_cvt *m)
{
    const double eps = par_num(p, "ln_eps", 1e-5);
    int64_t stride[TP_CVT_STAGES];

    for (int s = 0; s < TP_CVT_STAGES; s++) stride[s] = m->cfg.kv_stride;
    stages(p, "stride_kv", 1, stride);
    par_fixed(p, "stride_q", 1.0);
    par_fixed(p, "mlp_ratio", 4.0);
    for (int s = 0, i = 0; s < TP_CVT_STAGES; s++) {
        m->embed[s].norm.eps = eps;
        for (int b = 0; b < m->cfg.blocks[s] && par_ok(p); b++, i++) {
            tp_cvt_block *block = &m->block[i];
            tp_cvt_proj *const kv[] = { &block->attn.k, &block->attn.v };
            block->norm1.eps = block->norm2.eps = eps;
            for (int k = 0; k < 2; k++)
                kv[k]->conv.cfg.stride[0] = kv[k]->conv.cfg.stride[1] = stride[s];
            cvt_adjust(p, &block->attn);
        }
    }
    m->norm.eps = eps;
    set_patches(p, m);
}

static void declare(parity *p, tp_cvt *m, tp_cvt_cfg c)
{
    cvt_options(p, &c);
    set_stages(p, &c);
    c.classes = par_size(p, "num_classes", c.classes);
    if (p->failed) return;
    tp_model_cvt.init(p->P, m, "", &c);
    if (par_ok(p)) adjust_model(p, m);
}

static void declare_model(parity *p, void *self)
{
    static const char *const wanted[] = { "dims", "heads", "depth", "r", "w" };
    tp_cvt_cfg c = cvt_like(p->kind->variant);

    for (int i = 0; i < (c.long_short ? 5 : 3); i++)
        if (!par_given(p, wanted[i])) par_fail(p, "the metadata lack '%s'", wanted[i]);
    declare(p, self, c);
}

/* Declares a model of the library's table. */
static void declare_full(parity *p, void *self)
{
    int64_t size[2];
    tp_model_cfg c;

    par_image_size(p, "x", size);
    if (par_model(p, &tp_model_cvt, NULL, size, &c)) declare(p, self, *(const tp_cvt_cfg *)&c.at);
}

static void run_model(parity *p, void *self)
{
    par_output(p, "logits", tp_model_cvt.forward(p->T, self, NULL, par_images(p, "x")));
}

static void run_full(parity *p, void *self)
{
    par_classify(p, tp_model_cvt.forward(p->T, self, NULL, par_images(p, "x")));
}

/* no_bf16: losses that cancel and statistics over few pixels exceed the limits in bf16. */
/* clang-format off */
const par_kind par_cvt_kinds[] = {
    { PAR_MODULE("cvt.conv_embed", tp_cvt_embed, cvt_declare_embed, cvt_embed) },
    { PAR_MODULE("cvt.conv_projection", cvt_projection, cvt_declare_projection, cvt_project) },
    { PAR_MODULE("cvt.ws_sepconv", cvt_sepconv, cvt_declare_sepconv, cvt_separate) },
    { PAR_MODULE("cvt.attention", tp_cvt_attn, cvt_declare_attention, cvt_attend), .variant = CVT },
    { PAR_MODULE("cvt.ls_attention", tp_cvt_attn, cvt_declare_attention, cvt_attend), .variant = CVT_LS, .no_bf16 = true },
    { PAR_MODULE("cvt.block", tp_cvt_block, cvt_declare_block, cvt_block), .variant = CVT },
    { PAR_MODULE("cvt.model", tp_cvt, declare_model, run_model), .variant = CVT, .no_bf16 = true },
    { PAR_MODULE("cvt.star_model", tp_cvt, declare_model, run_model), .variant = CVT_STAR },
    { PAR_MODULE("cvt.ls_model", tp_cvt, declare_model, run_model), .variant = CVT_LS, .no_bf16 = true },
    { PAR_MODULE("cvt.full", tp_cvt, declare_full, run_full), .large = true },
    { PAR_MODULE("cvt.ls_full", tp_cvt, declare_full, run_full), .large = true },
    { .kind = NULL },
};
/* clang-format on */
