/* parity_window.c - kinds of Swin, CSWin, CoaT and MPViT: attentions, blocks and other parts,
 * models. */
#include <math.h>
#include <stdlib.h>
#include <tapegrad/coat.h>
#include <tapegrad/cswin.h>
#include <tapegrad/mpvit.h>
#include <tapegrad/swin.h>

#include "parity_case.h"

typedef tp_swin_block_cfg swin_block;
typedef tp_cswin_block_cfg cswin_block;
typedef tp_coat_block_cfg coat_block;
typedef tp_mpvit_encoder_cfg encoder;

/* ---- attention of Swin ---- */

typedef struct attention {
    tp_swin_attn m;
    int64_t map[2], shift; /* of the shifted map whose windows the batch holds; map 0: none */
} attention;

static void read_mask(parity *p, void *self)
{
    attention *a = self;
    if (!par_flag(p, "use_mask", p->kind->variant)) return;
    a->map[0] = par_size(p, "height", PAR_NEEDED);
    a->map[1] = par_size(p, "width", PAR_NEEDED);
    a->shift = par_int(p, "shift", PAR_NEEDED, 1, 1 << 16);
    par_fixed(p, "mask_value", -100.0);
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

/* x: windows [n,tokens,D]. Without a mask each is a map of one window. */
static void attend(parity *p, void *self)
{
    attention *a = self;
    const tp_tensor x = par_take(p, "x");
    const int64_t *w = a->m.window, H = a->map[0], W = a->map[1];
    if (!par_ok(p)) return;
    const int64_t n = tp_dim(x, 0);
    par_same(p, "windows", n);
    if (H && (w[0] != w[1] || H % w[0] || W % w[1] || n % (H / w[0] * (W / w[1])))) {
        par_fail(p, "%lld windows of %lld x %lld do not make maps of %lld x %lld", (long long)n,
                 (long long)w[0], (long long)w[1], (long long)H, (long long)W);
        return;
    }
    tp_tensor y =
        H ? joined(p->T, a, x) : tp_reshape(p->T, x, TP_SHAPE(n, w[0], w[1], tp_dim(x, 2)));
    y = tp_part_forward(p->T, &tp_model_swin, "attn", &a->m, &a->shift, y);
    par_output(p, "y", H ? divided(p->T, a, y) : tp_reshape(p->T, y, tp_shape_of(x)));
}

/* ---- blocks ---- */

static bool check_ratio(parity *p, double ratio, int64_t dim)
{
    const double hidden = ratio * (double)dim;
    if (hidden >= 1.0 && hidden < 1e6 && hidden == floor(hidden)) return true;
    par_illegal(p, "metadata mlp_ratio: %g times %lld channels", ratio, (long long)dim);
    return false;
}

static void check_swin_block(parity *p, void *cfg)
{
    swin_block *c = cfg;
    c->shift = par_int(p, "shift_argument", 0, 0, c->window - 1);
    check_ratio(p, c->mlp_ratio, c->dim);
}

static void finish_swin_block(parity *p, void *self)
{
    const tp_swin_block *m = self;
    const int64_t used = m->attn.window[0];
    par_same(p, "window_used", used);
    par_same(p, "shift_used",
             par_size(p, "height", 1) > used && par_size(p, "width", 1) > used ? m->shift : 0);
}

static void check_cswin_block(parity *p, void *cfg)
{
    const cswin_block *c = cfg;
    check_ratio(p, c->mlp_ratio, c->dim);
}

static void finish_cswin_block(parity *p, void *self)
{
    par_same(p, "branches", ((const tp_cswin_block *)self)->branches);
}

/* ---- attention of CSWin ---- */

static void check_lepe(parity *p, void *cfg)
{
    static const tp_cswin_stripes stripes[] = { TP_CSWIN_WHOLE, TP_CSWIN_VERTICAL,
                                                TP_CSWIN_HORIZONTAL };
    tp_cswin_lepe_cfg *c = cfg;
    const int64_t branch = par_int(p, "branch_index", PAR_NEEDED, -1, 1);
    const int64_t rows = par_size(p, "stripe_height", PAR_NEEDED);
    const int64_t cols = par_size(p, "stripe_width", PAR_NEEDED);
    const int64_t side = par_size(p, "resolution", PAR_NEEDED);
    if ((branch != 1 && rows != side) || (branch != 0 && cols != side))
        par_fail(p, "branch %lld of a map of %lld x %lld has no stripes of %lld x %lld",
                 (long long)branch, (long long)side, (long long)side, (long long)rows,
                 (long long)cols);
    c->stripes = stripes[branch + 1];
    c->split = branch == 1 ? rows : cols;
}

/* qkv [3,B,R*R,D] */
static void run_lepe(parity *p, void *self)
{
    const tp_tensor x = par_take(p, "qkv");
    tp_tensor part[3];
    if (!par_ok(p)) return;
    if (tp_ndim(x) != 4 || tp_dim(x, 0) != 3) {
        par_fail(p, "input.qkv must be [3,B,tokens,width]");
        return;
    }
    const tp_shape s = TP_SHAPE(tp_dim(x, 1), tp_dim(x, 2), tp_dim(x, 3));
    for (int i = 0; i < 3; i++) part[i] = tp_reshape(p->T, tp_slice(p->T, x, 0, i, 1), s);
    tp_cswin_lepe_in in = { part[1], part[2], par_size(p, "resolution", PAR_NEEDED) };
    par_output(p, "y", tp_part_forward(p->T, &tp_model_cswin, "lepe", self, &in, part[0]));
}

/* ---- patches ---- */

static void embed_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_conv_norm_init(P, m, name, *(const tp_conv_norm_cfg *)cfg);
}

static tp_tensor embed_forward(tp_tape *T, const void *m, void *with, tp_tensor x)
{
    (void)with;
    return tp_conv_norm_forward(T, m, x);
}

static const tp_model_part embed_parts[] = {
    { "embed", sizeof(tp_conv_norm), embed_init, embed_forward },
    { 0 },
};
static const tp_model embeddings = { .name = "embeddings", .parts = embed_parts };

/* ---- CoaT's encodings, which blocks share ---- */

/* The number that all of the text is; else -1. */
static int whole(const char *text)
{
    char *end;
    const long x = strtol(text, &end, 10);
    return end != text && !*end && x >= 0 && x < 1000 ? (int)x : -1;
}

/* The metadata's crpe_window, an object of kernels and their heads, in that order. */
static tp_coat_kernels read_kernels(parity *p)
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

/* Declares encodings with these names for a single part. NULL: failed. */
static const tp_coat_shared *share(parity *p, const char *cpe, const char *crpe, int64_t dim)
{
    const tp_coat_shared_cfg c = {
        .cpe = cpe, .crpe = crpe, .dim = dim, .kernels = read_kernels(p)
    };
    tp_coat_shared *shared = par_alloc(p, 1, sizeof *shared);
    if (p->failed) return NULL;
    tp_part_init(p->P, &tp_model_coat, "shared", shared, "", &c);
    return par_ok(p) ? shared : NULL;
}

static void check_coat_attn(parity *p, void *cfg)
{
    tp_coat_attn_cfg *c = cfg;
    c->shared = share(p, NULL, "crpe", c->dim);
}

static void check_coat_block(parity *p, void *cfg)
{
    coat_block *c = cfg;
    if (!check_ratio(p, c->mlp_ratio, c->dim)) return;
    c->shared = share(p, "cpe", "factoratt_crpe.crpe", c->dim);
}

/* ---- whole CoaT and MPViT ---- */

static void check_coat(parity *p, void *cfg)
{
    ((tp_coat_cfg *)cfg)->kernels = read_kernels(p);
}

/* Reads has_norm: which stages of a CoaT-Lite have the norm that all but the last do not use. The
 * library declares all. */
static void leave_out_norms(parity *p, const tp_coat *m)
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

static void finish_coat(parity *p, void *self)
{
    leave_out_norms(p, self);
}

static void finish_full(parity *p, void *self)
{
    const par_full *f = self;
    if (f->model == &tp_model_coat) leave_out_norms(p, f->module);
}

static void check_mpvit(parity *p, void *cfg)
{
    ((tp_mpvit_cfg *)cfg)->kernels = read_kernels(p);
}

/* ---- parts of MPViT ---- */

static void check_encoder(parity *p, void *cfg)
{
    tp_mpvit_encoder_cfg *c = cfg;
    c->kernels = read_kernels(p);
    check_ratio(p, c->mlp_ratio, c->dim);
}

static void check_stage(parity *p, void *cfg)
{
    check_encoder(p, &((tp_mpvit_stage_cfg *)cfg)->encoder);
}

static void check_embed(parity *p, void *cfg)
{
    ((tp_mpvit_embed_cfg *)cfg)->stride = par_int(p, "first_stride", PAR_NEEDED, 1, 2);
}

/* The paths [B,C,H*W], joined along channels. */
static void run_embed(parity *p, void *self)
{
    const tp_mpvit_embed *m = self;
    tp_tensor y[TP_MPVIT_PATHS];
    const tp_tensor x = par_images(p, "x");
    if (!par_ok(p)) return;
    tp_part_forward(p->T, &tp_model_mpvit, "embed", m, y, x);
    for (int i = 0; i < m->paths; i++) {
        const tp_tensor c = par_channels_first(p->T, y[i]);
        y[i] = tp_reshape(p->T, c, TP_SHAPE(tp_dim(c, 0), tp_dim(c, 1), -1));
    }
    par_output(p, "y", tp_concat_n(p->T, 1, m->paths, y));
}

static void run_stage(parity *p, void *self)
{
    const tp_mpvit_stage *m = self;
    tp_tensor x[TP_MPVIT_PATHS] = { TP_NONE };
    for (int i = 0; i < m->paths && par_ok(p); i++) x[i] = par_images(p, par_name(p, "x%d", i));
    if (!par_ok(p)) return;
    const tp_tensor y = tp_part_forward(p->T, &tp_model_mpvit, "stage", m, x, x[0]);
    par_output(p, "y", par_channels_first(p->T, y));
}

/* ---- kinds ---- */

#define SWIN_ATTENTION                                                                             \
    PAR_SIZE("dim", tp_swin_attn_cfg, dim), PAR_SIZE("heads", tp_swin_attn_cfg, heads),            \
        PAR_LIST("window", tp_swin_attn_cfg, window, 2)
#define BLOCK(type)                                                                                \
    PAR_SIZE("dim", type, dim), PAR_SIZE("heads", type, heads),                                    \
        PAR_REAL("mlp_ratio", type, mlp_ratio)

#define COAT_ATTENTION                                                                             \
    PAR_SIZE("dim", tp_coat_attn_cfg, dim), PAR_SIZE("heads", tp_coat_attn_cfg, heads)
#define ENCODER(width, type, member)                                                               \
    PAR_SIZE(width, type, member dim), PAR_SIZE("layers", type, member layers),                    \
        PAR_SIZE("heads", type, member heads), PAR_REAL("mlp_ratio", type, member mlp_ratio)
#define GRID       .in = PAR_GRID, .keys = { "height", "width", "class_token" }
#define BATCH_NORM "eps_bn=1e-5 momentum_bn=0.1"

const par_kind par_window_kinds[] = {
    { PAR_PART("window_baselines.swin_attention", tp_model_swin, "attn", tp_swin_attn_cfg,
               SWIN_ATTENTION),
      .size = sizeof(attention), .finish = read_mask, .forward = attend },
    { PAR_PART("window_baselines.swin_mask", tp_model_swin, "attn", tp_swin_attn_cfg,
               SWIN_ATTENTION),
      .size = sizeof(attention), .finish = read_mask, .forward = attend, .variant = 1 },
    { PAR_PART("window_baselines.swin_block", tp_model_swin, "block", swin_block, BLOCK(swin_block),
               PAR_SIZE("height", swin_block, map[0]), PAR_SIZE("width", swin_block, map[1]),
               PAR_SIZE("window_argument", swin_block, window)),
      .base = &(const swin_block){ .mlp_ratio = 4 }, .fixed = "eps_norm=1e-5",
      .check = check_swin_block, .finish = finish_swin_block, PAR_ON_MAP("height", "width") },
    { PAR_PART("window_baselines.swin_merge", tp_model_swin, "merge", int64_t,
               { "dim", .kind = TP_MEMBER_INT64 }),
      .fixed = "eps_norm=1e-5", PAR_ON_MAP("height", "width") },
    { PAR_PART("window_baselines.swin_patch_embed", embeddings, "embed", tp_conv_norm_cfg,
               PAR_SIZE("dim", tp_conv_norm_cfg, out)),
      .base = &(const tp_conv_norm_cfg){ .in = 3, .kernel = 4, .stride = 4 },
      .fixed = "patch=4 eps_norm=1e-5", .x = "image", .out = PAR_TOKENS },
    { .kind = "window_baselines.swin_model",
      .model = &tp_model_swin,
      .base = &(const tp_swin_cfg){ .mlp_ratio = 4 },
      .fixed = "patch=4 eps_norm=1e-5",
      .x = "image" },

    { PAR_PART("window_baselines.cswin_lepe_attention", tp_model_cswin, "lepe", tp_cswin_lepe_cfg,
               PAR_SIZE("dim", tp_cswin_lepe_cfg, dim),
               PAR_SIZE("heads", tp_cswin_lepe_cfg, heads)),
      .check = check_lepe, .forward = run_lepe },
    { PAR_PART("window_baselines.cswin_block", tp_model_cswin, "block", cswin_block,
               BLOCK(cswin_block), PAR_SIZE("resolution", cswin_block, side),
               PAR_SIZE("split_size", cswin_block, split),
               PAR_BOOL("last_stage", cswin_block, last)),
      .base = &(const cswin_block){ .mlp_ratio = 4 }, .fixed = "eps_norm=1e-5",
      .check = check_cswin_block, .finish = finish_cswin_block,
      PAR_ON_MAP("resolution", "resolution") },
    { PAR_PART("window_baselines.cswin_merge", embeddings, "embed", tp_conv_norm_cfg,
               PAR_SIZE("dim_in", tp_conv_norm_cfg, in),
               PAR_SIZE("dim_out", tp_conv_norm_cfg, out)),
      .base = &(const tp_conv_norm_cfg){ .conv = "conv", .kernel = 3, .stride = 2, .pad = 1 },
      .fixed = "eps_norm=1e-5", PAR_ON_MAP("resolution", "resolution") },
    { .kind = "window_baselines.cswin_model",
      .model = &tp_model_cswin,
      .base = &(const tp_cswin_cfg){ .mlp_ratio = 4 },
      .spelled = "depths=depth split=split_size",
      .fixed = "patch=7/4/2 eps_norm=1e-5",
      .x = "image" },

    { PAR_PART("window_baselines.coat_conv_pos_enc", tp_model_coat, "shared", tp_coat_shared_cfg,
               PAR_SIZE("dim", tp_coat_shared_cfg, dim)),
      .base = &(const tp_coat_shared_cfg){ .cpe = "", .kernels = { 1, { 1 }, { 1 } } }, GRID },
    { PAR_PART("window_baselines.coat_factor_attention", tp_model_coat, "attn", tp_coat_attn_cfg,
               COAT_ATTENTION),
      .check = check_coat_attn, GRID },
    { PAR_PART("window_baselines.coat_block", tp_model_coat, "block", coat_block,
               BLOCK(coat_block)),
      .base = &(const coat_block){ .mlp_ratio = 4 }, .fixed = "eps_norm=1e-6",
      .check = check_coat_block, GRID },
    { PAR_PART("window_baselines.coat_patch_embed", embeddings, "embed", tp_conv_norm_cfg,
               PAR_SIZE("dim_in", tp_conv_norm_cfg, in), PAR_SIZE("dim_out", tp_conv_norm_cfg, out),
               PAR_SIZE("patch", tp_conv_norm_cfg, kernel),
               PAR_SIZE("patch", tp_conv_norm_cfg, stride)),
      .base = &(const tp_conv_norm_cfg){ .kernel = 2, .stride = 2 }, .fixed = "eps_patch_norm=1e-5",
      .out = PAR_TOKENS },
    { .kind = "window_baselines.coat_model",
      .model = &tp_model_coat,
      .base = &(const tp_coat_cfg){ .heads = 8, .kernels = TP_COAT_PUBLISHED },
      .check = check_coat,
      .finish = finish_coat,
      .fixed = "class_token=1 patch=4,2,2,2 eps_norm=1e-6 eps_patch_norm=1e-5",
      .x = "image" },

    /* no_bf16: statistics over few pixels exceed the limits in bf16. */
    { PAR_PART("window_baselines.mpvit_factor_attention", tp_model_coat, "attn", tp_coat_attn_cfg,
               COAT_ATTENTION),
      .check = check_coat_attn, GRID },
    { PAR_PART("window_baselines.mpvit_encoder", tp_model_mpvit, "encoder", encoder,
               ENCODER("dim", encoder, )),
      .base = &(const encoder){ .heads = 8, .mlp_ratio = 4 },
      .fixed = "class_token=0 eps_norm=1e-6", .check = check_encoder, .in = PAR_MAP,
      .keys = { "height", "width" }, .out = PAR_CHANNELS },
    { PAR_PART("window_baselines.mpvit_patch_embed", tp_model_mpvit, "embed", tp_mpvit_embed_cfg,
               PAR_SIZE("dim", tp_mpvit_embed_cfg, dim),
               PAR_SIZE("paths", tp_mpvit_embed_cfg, paths)),
      .fixed = BATCH_NORM, .check = check_embed, .forward = run_embed },
    { PAR_PART("window_baselines.mpvit_resblock", tp_model_mpvit, "residual", int64_t,
               { "dim", .kind = TP_MEMBER_INT64 }),
      .fixed = BATCH_NORM, .out = PAR_CHANNELS },
    { PAR_PART("window_baselines.mpvit_stage", tp_model_mpvit, "stage", tp_mpvit_stage_cfg,
               ENCODER("dim_in", tp_mpvit_stage_cfg, encoder.),
               PAR_SIZE("paths", tp_mpvit_stage_cfg, paths),
               PAR_SIZE("dim_out", tp_mpvit_stage_cfg, out)),
      .base = &(const tp_mpvit_stage_cfg){ .encoder = { .heads = 8, .mlp_ratio = 4 } },
      .fixed = "class_token=0 eps_norm=1e-6 " BATCH_NORM, .check = check_stage,
      .forward = run_stage },
    { .kind = "window_baselines.mpvit_model",
      .model = &tp_model_mpvit,
      .base = &(const tp_mpvit_cfg){ .heads = 8, .kernels = TP_COAT_PUBLISHED },
      .check = check_mpvit,
      .fixed = "class_token=0 eps_norm=1e-6 " BATCH_NORM,
      .x = "image",
      .no_bf16 = true },

    { PAR_MODULE("window_baselines.full", par_full, par_declare_full, par_run_full), .large = true,
      .finish = finish_full, .x = "image" },
    { .kind = NULL },
};
