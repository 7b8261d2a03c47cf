/* parity_lsla.c - kinds of ViT-LSLA: the attention on windows and on maps, block, stem,
 * downsampling, models; learning rates and the split of Mini-ImageNet. */
#include <tapegrad/random.h>
#include <tapegrad/vit_lsla.h>

#include "parity_case.h"

typedef tp_lsla_part_cfg part;
typedef tp_lsla_block_cfg block;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- attention ---- */

typedef struct attention {
    tp_lsla_attn_m m;
    int64_t shift;
} attention;

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

static void check_op(parity *p, void *cfg)
{
    const int64_t w = ((const part *)cfg)->window;
    par_same(p, "tokens_per_window", w * w);
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

/* The smaller side of the map. */
static int64_t side(parity *p)
{
    return least(par_size(p, "height", PAR_NEEDED), par_size(p, "width", PAR_NEEDED));
}

/* If the map is no larger than a window, the window becomes the map's smaller side and is not
 * shifted. */
static void check_window_op(parity *p, void *cfg)
{
    part *c = cfg;
    c->window = least(c->window, side(p));
}

static void finish_window_op(parity *p, void *self)
{
    const int64_t wanted = par_size(p, "window", PAR_NEEDED);
    const int64_t shift = par_int(p, "shift", 0, 0, wanted - 1);
    ((attention *)self)->shift = side(p) > wanted ? shift : 0;
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

static void check_block(parity *p, void *cfg)
{
    block *c = cfg;
    c->shift = par_int(p, "shift", 0, 0, c->window - 1);
    if (!(c->mlp_ratio * (double)c->dim >= 1.0 && c->mlp_ratio < 1e6))
        par_illegal(p, "metadata mlp_ratio: %g times %lld channels", c->mlp_ratio,
                    (long long)c->dim);
}

static void check_merge(parity *p, void *cfg)
{
    par_fixed(p, "dim_out", 2.0 * (double)*(const int64_t *)cfg);
}

/* ---- the recipe ---- */

/* The rates of the metadata are per 512 images. They are always compared in double precision. */
static void run_schedule(parity *p)
{
    const int64_t images = par_size(p, "train_images", PAR_NEEDED);
    const int64_t batch = par_size(p, "batch", PAR_NEEDED);
    const int64_t epoch = par_size(p, "updates_per_epoch", images / batch);
    const int64_t warmup = epoch * par_count(p, "warmup_epochs", 20);
    const int64_t total = epoch * par_size(p, "epochs", 300);
    const double k = (double)batch / 512.0;
    const double start = k * par_num(p, "warmup_lr_per_512", 5e-7);
    const double lr = k * par_num(p, "base_lr_per_512", 5e-4);
    const double end = k * par_num(p, "min_lr_per_512", 5e-6);
    tp_shape s;
    const int64_t *u = par_integers(p, "input.update", &s);
    const int64_t n = par_numel(s);
    double *rate = par_alloc(p, n, sizeof *rate);

    par_same(p, "updates_per_epoch", images / batch);
    for (int64_t i = 0; u && rate && i < n; i++)
        rate[i] = tp_lr_cosine_from(u[i], warmup, total, start, lr, end);
    if (rate) par_check(p, "output.lr", rate, n, par_exact(p, "output.lr"));
}

/* The rows of a class, permuted by NumPy with the seed 1. */
static void run_split(parity *p)
{
    const int64_t n = par_numel(par_shape(p, "output.permutation"));
    int64_t *order = par_alloc(p, n, sizeof *order);

    if (!order) return;
    tp_numpy_permutation(1, n, order);
    par_check_integers(p, "output.permutation", order, n);
}

/* ---- kinds ---- */

static const char *const variants[] = { "qxx", "qxv", "qkv", "qxx_np", NULL };
static const char *const scales[] = { "dynamic", "fixed", NULL };
#define ATTENTION(type)                                                                            \
    PAR_SIZE("dim", type, dim), PAR_SIZE("heads", type, heads), PAR_SIZE("window", type, window),  \
        { "variant", TP_MEMBER_WORD, .at = offsetof(type, attn.variant), .words = variants },      \
        { "scale", TP_MEMBER_CHOICE, .at = offsetof(type, attn.fixed_scale), .words = scales },    \
        PAR_NOT("inner", type, attn.raw_scores), PAR_NOT("outer", type, attn.raw_weights),         \
        PAR_BOOL("mask_outer", type, attn.mask_outer)

const par_kind par_lsla_kinds[] = {
    { PAR_PART("lsla.op", tp_model_vit_lsla, "attn", part, ATTENTION(part)),
      .size = sizeof(attention), .check = check_op, .forward = run_op },
    { PAR_PART("lsla.window_op", tp_model_vit_lsla, "attn", part, ATTENTION(part)),
      .size = sizeof(attention), .name = "attn", .check = check_window_op,
      .finish = finish_window_op, .forward = run_window_op },
    { PAR_PART("lsla.block", tp_model_vit_lsla, "block", block, ATTENTION(block),
               PAR_SIZE("height", block, map[0]), PAR_SIZE("width", block, map[1]),
               PAR_REAL("mlp_ratio", block, mlp_ratio)),
      .base = &(const block){ .mlp_ratio = 2 }, .check = check_block,
      PAR_ON_MAP("height", "width") },
    { PAR_PART("lsla.stem", tp_model_vit_lsla, "stem", int64_t,
               { "channels", .kind = TP_MEMBER_INT64 }),
      .out = PAR_CHANNELS },
    { PAR_PART("lsla.merge", tp_model_vit_lsla, "merge", int64_t,
               { "dim_in", .kind = TP_MEMBER_INT64 }),
      .check = check_merge, PAR_ON_MAP("height", "width") },
    { .kind = "lsla.model", .model = &tp_model_vit_lsla, .preset = "vit_lsla", .x = "image" },
    { .kind = "lsla.full",
      .model = &tp_model_vit_lsla,
      .preset = "vit_lsla",
      .x = "image",
      .out = PAR_LOGITS,
      .large = true },
    { .kind = "lsla.lr_schedule", .run = run_schedule },
    { .kind = "lsla.mini_imagenet_split", .run = run_split },
    { .kind = "lsla.image_ops", .run = par_run_images },
    { .kind = "lsla.mixup_loss", .run = par_run_mixing, .no_bf16 = true },
    { .kind = NULL },
};
