/* parity_lsla.c - cases of ViT-LSLA: the attention on windows and on maps, block, stem,
 * downsampling, models. Images, and what the stem makes of them, are stored channels first. */
#include <stdlib.h>
#include <string.h>

#include "parity_lsla.h"

static tp_lsla_opts options(parity *p)
{
    static const char *const names[] = { "qxx", "qxv", "qkv", "qxx_np" };
    tp_lsla_opts o = { .fixed_scale = par_is(p, "scale", "fixed"),
                       .no_inner = !par_int(p, "inner", 1),
                       .no_outer = !par_int(p, "outer", 1),
                       .mask_outer = par_int(p, "mask_outer", 0) != 0 };
    for (int i = 0; i < 4; i++)
        if (par_is(p, "variant", names[i])) o.variant = (tp_lsla_variant)i;
    return o;
}

static tp_tape *new_tape(parity *p)
{
    return tp_tape_new(p->D, &(tp_tape_opts){ .compute = p->compute, .train = par_train(p) });
}

static tp_tensor channels_last(tp_tape *T, tp_tensor x)
{
    return tp_permute(T, x, TP_SHAPE(0, 2, 3, 1));
}

static tp_tensor channels_first(tp_tape *T, tp_tensor x)
{
    return tp_permute(T, x, TP_SHAPE(0, 3, 1, 2));
}

/* Compares y, differentiates, compares all gradients. */
static void finish(parity *p, tp_tape *T, tp_params *P, tp_tensor y, const char *input, tp_tensor x)
{
    par_check_tensor(p, T, "output.y", y);
    tp_backward(T, par_probe(p, T, y));
    if (!par_ok(p, T, P)) return;
    par_check_input_grad(p, T, input, x);
    par_check_grads(p, P);
}

/* Running statistics after the forward pass, where the case has them. */
static void check_buffers(parity *p, tp_params *P)
{
    for (tp_param_info it = { 0 }; !p->failed && tp_next_param(P, &it);) {
        char name[256];
        const int64_t n = tp_numel(it.tensor);
        snprintf(name, sizeof name, "output.buffer.%s", it.name);
        if (!it.buffer || !par_has(p, name)) continue;
        double *x = malloc((size_t)(n + 1) * sizeof *x);
        if (!x) par_fail(p, "%s: out of memory", name);
        if (x && tp_param_get(P, it.tensor, TP_F64, x, (size_t)n * sizeof *x))
            par_check(p, name, x, n, par_limit(p, PAR_OUTPUT));
        free(x);
    }
    par_ok(p, NULL, P);
}

/* ---- attention ---- */

static void check_maps(parity *p, tp_tape *T, const tp_lsla_attn_m *m, tp_tensor x, int64_t shift)
{
    const tp_lsla_maps y = tp_lsla_attn_maps(T, m, x, shift);
    if (par_has(p, "output.scores")) par_check_tensor(p, T, "output.scores", y.scores);
    par_check_tensor(p, T, "output.attn_before_outer", y.before);
    par_check_tensor(p, T, "output.attn_after_outer", y.after);
}

/* Windows [B,N,D] are maps of one window each. */
static void run_attention(parity *p, const char *name, bool windows)
{
    const int64_t w = par_int(p, "window", 7), shift = par_int(p, "shift", 0);
    tp_params *P = par_params_new(p);
    tp_tape *T = new_tape(p);
    tp_lsla_attn_m m;

    tp_lsla_attn_init(P, &m, name, par_int(p, "dim", 0), (int)par_int(p, "heads", 1), w,
                      options(p));
    par_load(p, P);
    if (!p->failed) {
        const tp_tensor x = par_input(p, T, "input.x");
        const tp_tensor map =
            windows ? tp_reshape(T, x, TP_SHAPE(tp_dim(x, 0), w, w, tp_dim(x, 2))) : x;
        const tp_tensor y = tp_lsla_attn_forward(T, &m, map, shift);
        check_maps(p, T, &m, tp_detach(T, map), shift);
        finish(p, T, P, tp_reshape(T, y, tp_shape_of(x)), "x", x);
    }
    tp_tape_free(T);
    tp_params_free(P);
}

static void run_op(parity *p)
{
    run_attention(p, "", true);
}

static void run_window_op(parity *p)
{
    run_attention(p, "attn", false);
}

/* ---- parts ---- */

static void run_block(parity *p)
{
    const tp_lsla_block_cfg cfg = { .map = { par_int(p, "height", 0), par_int(p, "width", 0) },
                                    .dim = par_int(p, "dim", 0),
                                    .window = par_int(p, "window", 7),
                                    .shift = par_int(p, "shift", 0),
                                    .heads = (int)par_int(p, "heads", 1),
                                    .mlp_ratio = par_num(p, "mlp_ratio", 2.0),
                                    .attn = options(p) };
    tp_params *P = par_params_new(p);
    tp_tape *T = new_tape(p);
    tp_lsla_block m;

    tp_lsla_block_init(P, &m, "", &cfg);
    par_load(p, P);
    if (!p->failed) {
        const tp_tensor x = par_input(p, T, "input.x");
        const tp_shape map = TP_SHAPE(tp_dim(x, 0), cfg.map[0], cfg.map[1], cfg.dim);
        const tp_tensor y = tp_lsla_block_forward(T, &m, tp_reshape(T, x, map));
        finish(p, T, P, tp_reshape(T, y, tp_shape_of(x)), "x", x);
    }
    tp_tape_free(T);
    tp_params_free(P);
}

static void run_stem(parity *p)
{
    tp_params *P = par_params_new(p);
    tp_tape *T = new_tape(p);
    tp_lsla_stem m;

    tp_lsla_stem_init(P, &m, "", par_int(p, "channels", 0));
    par_load(p, P);
    if (!p->failed) {
        const tp_tensor x = par_input(p, T, "input.x");
        const tp_tensor y = tp_lsla_stem_forward(T, &m, channels_last(T, x));
        finish(p, T, P, channels_first(T, y), "x", x);
        check_buffers(p, P);
    }
    tp_tape_free(T);
    tp_params_free(P);
}

static void run_merge(parity *p)
{
    const int64_t dim = par_int(p, "dim_in", 0);
    tp_params *P = par_params_new(p);
    tp_tape *T = new_tape(p);
    tp_lsla_merge m;

    tp_lsla_merge_init(P, &m, "", dim);
    par_load(p, P);
    if (!p->failed) {
        const tp_tensor x = par_input(p, T, "input.x");
        const int64_t B = tp_dim(x, 0);
        const tp_shape map = TP_SHAPE(B, par_int(p, "height", 0), par_int(p, "width", 0), dim);
        const tp_tensor y = tp_lsla_merge_forward(T, &m, tp_reshape(T, x, map));
        finish(p, T, P, tp_reshape(T, y, TP_SHAPE(B, -1, 2 * dim)), "x", x);
    }
    tp_tape_free(T);
    tp_params_free(P);
}

/* ---- models ---- */

static int integers(parity *p, const char *key, int max, int *to)
{
    double x[TP_VIT_MAX_STAGES];
    const int n = par_list(p, key, max, x);
    for (int i = 0; i < n; i++) to[i] = (int)x[i];
    return n;
}

static tp_vit_lsla_cfg configuration(parity *p)
{
    tp_vit_lsla_cfg c = tp_vit_lsla_paper(par_int(p, "classes", 102));
    int side[2];
    if (integers(p, "image", 2, side) == 2)
        for (int i = 0; i < 2; i++) c.image[i] = side[i];
    c.stages = integers(p, "depths", TP_VIT_MAX_STAGES, c.depths);
    if (integers(p, "heads", TP_VIT_MAX_STAGES, c.heads) != c.stages)
        par_fail(p, "as many heads as depths are needed");
    c.dim = par_int(p, "dim", 96);
    c.window = par_int(p, "window", 7);
    c.mlp_ratio = par_num(p, "mlp_ratio", 2.0);
    c.drop_path = 0.0;
    c.attn = options(p);
    return c;
}

typedef struct model_case {
    tp_params *P;
    tp_tape *T;
    tp_vit_lsla m;
} model_case;

/* NULL: p says why. */
static model_case *open_model(parity *p)
{
    model_case *c = calloc(1, sizeof *c);
    if (!c) {
        par_fail(p, "out of memory");
        return NULL;
    }
    c->P = par_params_new(p);
    c->T = new_tape(p);
    tp_vit_lsla_init(c->P, &c->m, "", configuration(p));
    par_load(p, c->P);
    return c;
}

static void close_model(model_case *c)
{
    tp_tape_free(c->T);
    tp_params_free(c->P);
    free(c);
}

static void run_model(parity *p)
{
    model_case *c = open_model(p);
    if (!c) return;
    if (!p->failed) {
        const tp_tensor x = par_input(p, c->T, "input.image");
        finish(p, c->T, c->P, tp_vit_lsla_forward(c->T, &c->m, channels_last(c->T, x)), "image", x);
        check_buffers(p, c->P);
    }
    close_model(c);
}

/* Images that the fill rule makes, channels first. */
static tp_tensor filled_images(parity *p, tp_tape *T)
{
    int s[4];
    const char *name = tp_file_meta(p->F, "input_fill");
    if (integers(p, "input_shape", 4, s) != 4 || !name)
        return tp_raise(T, TP_E_VALUE, "input_shape must have four sizes, input_fill a name");
    const int64_t n = (int64_t)s[0] * s[1] * s[2] * s[3];
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    if (!x) return tp_raise(T, TP_E_MEMORY, "out of memory");
    for (int64_t i = 0; i < n; i++) x[i] = (float)(2.0 * par_uniform(par_hash(name), i) - 1.0);
    const tp_tensor y = tp_from(T, TP_F32, TP_SHAPE(s[0], s[1], s[2], s[3]), x);
    free(x);
    return tp_cast(T, y, p->compute);
}

static void run_full(parity *p)
{
    model_case *c = open_model(p);
    if (!c) return;
    tp_tape *T = c->T;
    const long long count = (long long)tp_params_count(c->P);
    const long long want = (long long)par_int(p, "parameter_count", 0);
    if (count != want) par_fail(p, "%lld parameters instead of %lld", count, want);
    if (!p->failed) {
        const tp_tensor images = channels_last(T, filled_images(p, T));
        const tp_tensor logits = tp_vit_lsla_forward(T, &c->m, images);
        const tp_tensor label = tp_full(T, TP_I64, TP_SHAPE(tp_dim(logits, 0)), 1.0);
        const tp_tensor loss = tp_cross_entropy(T, logits, label, TP_MEAN);
        par_check_tensor(p, T, "output.logits", logits);
        par_check_tensor(p, T, "output.loss", loss);
        tp_backward(T, loss);
        if (par_ok(p, T, c->P)) par_check_grads(p, c->P);
    }
    close_model(c);
}

const parity_kind parity_lsla_kinds[] = {
    { .kind = "lsla.op", .run = run_op },
    { .kind = "lsla.window_op", .run = run_window_op },
    { .kind = "lsla.block", .run = run_block },
    { .kind = "lsla.stem", .run = run_stem },
    { .kind = "lsla.merge", .run = run_merge },
    { .kind = "lsla.model", .run = run_model },
    { .kind = "lsla.full", .run = run_full, .large = true },
    { .kind = "lsla.lr_schedule", .run = lsla_run_schedule },
    { .kind = "lsla.mini_imagenet_split", .run = lsla_run_split },
    { .kind = "lsla.image_ops", .run = lsla_run_image_ops },
    { .kind = "lsla.mixup_loss", .run = lsla_run_mixing, .no_bf16 = true },
    { .kind = NULL },
};
