/* parity_cvt.c - kinds of CvT, CvT* and CvT*-LS: token embedding, projections, attentions, block,
 * models. */
#include <tapegrad/cvt.h>

#include "parity_case.h"

/* ---- convolutions ---- */

/* [B,H,W,C] -> [B,H*W,C] */
static tp_tensor tokens(tp_tape *T, tp_tensor map)
{
    return tp_reshape(T, map, TP_SHAPE(tp_dim(map, 0), -1, tp_dim(map, 3)));
}

typedef struct projection {
    tp_conv2d_m conv;
    tp_batchnorm_m bn;
} projection;

static void declare_projection(parity *p, void *self)
{
    const int64_t C = par_size(p, "channels", PAR_NEEDED), stride = par_size(p, "stride", 1);
    const int64_t pad = par_count(p, "padding", 1);
    const tp_conv_cfg cfg = { { stride, stride }, { pad, pad }, { 1, 1 }, C };
    projection *m = self;

    tp_conv2d_init(p->P, &m->conv, "conv", C, C, par_size(p, "kernel", 3), false, cfg);
    tp_batchnorm_init(p->P, &m->bn, "bn", C, par_num(p, "bn_eps", 1e-5));
}

/* Depthwise convolution and batch norm of x, x2 and further inputs. In training mode each is
 * normalised on its own; the running statistics are compared after the last. */
static void project(parity *p, void *self)
{
    const projection *m = self;
    const char *input = "x", *output = "y";

    for (int k = 2; !p->failed && (k == 2 || par_has(p, par_name(p, "input.%s", input))); k++) {
        const tp_tensor f = tp_conv2d_forward(p->T, &m->conv, par_images(p, input));
        par_output(p, output, tokens(p->T, tp_batchnorm_forward(p->T, &m->bn, f)));
        input = par_name(p, "x%d", k);
        output = par_name(p, "y%d", k);
    }
}

typedef struct sepconv {
    tp_conv2d_m conv;
    tp_linear_m linear;
} sepconv;

static void declare_sepconv(parity *p, void *self)
{
    const int64_t C = par_size(p, "channels", PAR_NEEDED);
    const tp_conv_cfg cfg = { { 1, 1 }, { 1, 1 }, { 1, 1 }, C };
    sepconv *m = self;

    tp_conv2d_init(p->P, &m->conv, "conv_proj_p.conv", C, C, 3, true, cfg);
    tp_linear_init(p->P, &m->linear, "proj_p", C, par_size(p, "out", PAR_NEEDED), true);
}

/* The scores of the dynamic projection. */
static void separate(parity *p, void *self)
{
    const sepconv *m = self;
    const tp_tensor x = par_images(p, "x");
    const double eps = par_num(p, "eps", 1e-5);
    const tp_tensor w = tp_weight_standardize(p->T, m->conv.weight, eps, false);
    const tp_tensor y = tp_conv2d(p->T, x, w, m->conv.bias, m->conv.cfg);
    par_output(p, "y", tp_linear_forward(p->T, &m->linear, tokens(p->T, y)));
}

/* ---- attentions, block ---- */

/* The presets are only those of the options: everything else must be there. */
static void check_given(parity *p, const tp_cvt_cfg *c)
{
    static const char *const of_part[] = { "dim", "heads", "r", "w" };
    static const char *const of_model[] = { "dims", "heads", "depth", "r", "w" };
    const char *const *wanted = p->kind->part ? of_part : of_model;
    const int n = (p->kind->part ? 2 : 3) + (c->long_short ? 2 : 0);
    for (int i = 0; i < n; i++)
        if (!par_given(p, wanted[i])) par_fail(p, "the metadata lack '%s'", wanted[i]);
}

enum { PROJ_NO, PROJ_YES, PROJ_AUTO };

/* auto: a single head has no output projection. -1: the metadata lack the key. */
static int output_projection(parity *p)
{
    static const char *const words[] = { "0", "1", "auto", NULL };
    return par_word(p, "out_proj", -1, words);
}

static void check_stage(parity *p, void *cfg)
{
    tp_cvt_cfg *c = cfg;
    const int proj = output_projection(p);

    check_given(p, c);
    if (proj >= 0) c->single_proj = proj == PROJ_YES;
    if (c->dim[0] % c->heads[0])
        par_illegal(p, "metadata dim: %lld channels do not divide into %d heads",
                    (long long)c->dim[0], c->heads[0]);
    if (c->long_short) par_same(p, "window_side", c->window[0] > 1 ? c->window[0] / 2 : 1);
}

/* The library always projects the output of several heads. */
static void drop_projection(parity *p, void *self)
{
    tp_cvt_attn *m = self;
    if (output_projection(p) != PROJ_NO || !tp_given(m->proj.weight)) return;
    p->dropped += tp_numel(m->proj.weight) + tp_numel(m->proj.bias);
    m->proj = (tp_linear_m){ 0 };
}

static void check_model(parity *p, void *cfg)
{
    check_given(p, cfg);
}

/* ---- kinds ---- */

static const char *const scales[] = { "head_dim**-0.5", "dim**-0.5", NULL };
static const char *const activations[] = { "gelu", "quick_gelu", NULL };
static const char *const classes[] = { "linear", "raw", NULL };
#define AT(member) offsetof(tp_cvt_cfg, member)
#define OPTIONS                                                                                    \
    { "scale", TP_MEMBER_CHOICE, .at = AT(wide_scale), .words = scales },                          \
        { "activation", TP_MEMBER_CHOICE, .at = AT(quick_gelu), .words = activations },            \
        { "cls_proj", TP_MEMBER_CHOICE, .at = AT(raw_class), .words = classes },                   \
        PAR_NOT("dual_ln", tp_cvt_cfg, raw_kv)
#define STAGE                                                                                      \
    OPTIONS, PAR_SIZE("stride_kv", tp_cvt_cfg, kv_stride), PAR_SIZE("dim", tp_cvt_cfg, dim[0]),    \
        PAR_SIZE("heads", tp_cvt_cfg, heads[0])
#define LS_STAGE STAGE, PAR_SIZE("r", tp_cvt_cfg, rank[0]), PAR_SIZE("w", tp_cvt_cfg, window[0])
#define STAGES                                                                                     \
    OPTIONS, PAR_SIZE("num_classes", tp_cvt_cfg, classes), LIST("dims", dim),                      \
        LIST("heads", heads),                                                                      \
    {                                                                                              \
        "depth", TP_MEMBER_INTS, .at = AT(blocks), .count = TP_CVT_STAGES, .optional = true        \
    }
#define LIST(key, member) PAR_LIST(key, tp_cvt_cfg, member, TP_CVT_STAGES)
#define LS_STAGES         STAGES, LIST("r", rank), LIST("w", window)
#define NORMS             " bn_eps=1e-5 ln_eps=1e-5 ws_eps=1e-5 stride_q=1"

#define MODEL .fixed = "out_proj=auto mlp_ratio=4 stride_kv=2,2,2 patch=7/4/2,3/2/1,3/2/1" NORMS

#define PART .of_model = true, .check = check_stage, .in = PAR_GRID, .keys = { "H", "W", "cls" }

/* no_bf16: losses that cancel and statistics over few pixels exceed the limits in bf16. */
const par_kind par_cvt_kinds[] = {
    { PAR_PART("cvt.conv_embed", tp_model_cvt, "embed", tp_cvt_embed_cfg,
               PAR_SIZE("in_channels", tp_cvt_embed_cfg, in),
               PAR_SIZE("out_channels", tp_cvt_embed_cfg, out),
               PAR_SIZE("kernel", tp_cvt_embed_cfg, kernel),
               PAR_SIZE("stride", tp_cvt_embed_cfg, stride),
               PAR_COUNT("padding", tp_cvt_embed_cfg, pad)),
      .fixed = "ln_eps=1e-5", .out = PAR_CHANNELS },
    { PAR_MODULE("cvt.conv_projection", projection, declare_projection, project) },
    { PAR_MODULE("cvt.ws_sepconv", sepconv, declare_sepconv, separate) },
    { PAR_PART("cvt.attention", tp_model_cvt, "attn", tp_cvt_block_cfg, STAGE),
      .preset = "cvt-13-224", .fixed = NORMS, .finish = drop_projection, PART },
    { PAR_PART("cvt.ls_attention", tp_model_cvt, "attn", tp_cvt_block_cfg, LS_STAGE),
      .preset = "cvt_ls-13-224", .fixed = NORMS, .finish = drop_projection, PART, .no_bf16 = true },
    { PAR_PART("cvt.block", tp_model_cvt, "block", tp_cvt_block_cfg, STAGE), .preset = "cvt-13-224",
      .fixed = "mlp_ratio=4" NORMS, PART },
    { PAR_WHOLE("cvt.model", tp_model_cvt, STAGES), .preset = "cvt-13-224", MODEL,
      .check = check_model, .y = "logits", .no_bf16 = true },
    { PAR_WHOLE("cvt.star_model", tp_model_cvt, STAGES), .preset = "cvt_star-13-224", MODEL,
      .check = check_model, .y = "logits" },
    { PAR_WHOLE("cvt.ls_model", tp_model_cvt, LS_STAGES), .preset = "cvt_ls-13-224", MODEL,
      .check = check_model, .y = "logits", .no_bf16 = true },
    { PAR_WHOLE("cvt.full", tp_model_cvt, STAGES), .preset = "", MODEL, .out = PAR_LOGITS,
      .large = true },
    { PAR_WHOLE("cvt.ls_full", tp_model_cvt, LS_STAGES), .preset = "", MODEL, .out = PAR_LOGITS,
      .large = true },
    { .kind = NULL },
};
