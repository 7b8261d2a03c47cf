/* test_lora.c - low-rank adaptation: gradients by differences, frozen weights, which modules, a
 * head over an embedding, fused and gated layers, files, merging, refusals. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <tapegrad/gpt.h>
#include <tapegrad/optim.h>
#include <tapegrad/roberta.h>
#include <tapegrad/vision.h>

#include "support/device.h"
#include "support/folder.h"
#include "support/values.h"

TestSuite(lora, .init = make_folder, .fini = remove_folder);

/* ---- a set of parameters with linear modules ---- */

enum { IN = 6, OUT = 8, ROWS = 5 };

typedef struct rig {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
} rig;

static rig open_rig(const tp_lora_opts *o)
{
    rig r = { .D = device_open(NULL) };
    r.P = tp_params_new(r.D, &(tp_params_opts){ .seed = 3, .dtype = device_real() });
    r.T = tp_tape_new(r.D, &(tp_tape_opts){ .compute = device_real() });
    if (o) tp_lora(r.P, o);
    return r;
}

static void close_rig(rig *r)
{
    tp_tape_free(r->T);
    tp_params_free(r->P);
    tp_device_close(r->D);
}

/* Gives each parameter random values, B too. */
static void draw(tp_params *P)
{
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const int64_t n = tp_numel(it.tensor);
        double *values = malloc((size_t)n * sizeof *values);
        values_random(values, n, 5 + (uint64_t)it.index);
        for (int64_t i = 0; i < n; i++) values[i] *= 0.5;
        if (!it.alias_of && !it.buffer)
            cr_assert(tp_param_set(P, it.tensor, TP_F64, values, (size_t)n * sizeof *values), "%s",
                      tp_params_why(P));
        free(values);
    }
}

static tp_tensor input(const rig *r, int64_t rows, int64_t n)
{
    double x[64];
    values_random(x, rows * n, 99);
    return values_constant(r->T, device_real(), TP_SHAPE(rows, n), x);
}

static void get(tp_params *P, const char *name, double *to, int64_t n)
{
    cr_assert(tp_param_get(P, tp_find(P, name), TP_F64, to, (size_t)n * sizeof *to), "%s: %s", name,
              tp_params_why(P));
}

/* ---- the formula ---- */

/* y = act(x W^T + b + (alpha / rank) x A^T B^T), all of it, without the bias, in parts, and by the
 * weight. */
Test(lora, formula)
{
    enum { RANK = 2 };
    rig r = open_rig(&(tp_lora_opts){ .rank = RANK, .alpha = 3 });
    tp_linear_m m;
    tp_linear_init(r.P, &m, "fc", IN, OUT, true);
    draw(r.P);
    double w[OUT * IN], b[OUT], A[RANK * IN], B[OUT * RANK], x[ROWS * IN];
    double want[ROWS * OUT], got[ROWS * OUT];
    get(r.P, "fc.weight", w, OUT * IN);
    get(r.P, "fc.bias", b, OUT);
    get(r.P, "fc.lora_A.weight", A, RANK * IN);
    get(r.P, "fc.lora_B.weight", B, OUT * RANK);
    values_random(x, ROWS * IN, 99);
    for (int i = 0; i < ROWS; i++)
        for (int o = 0; o < OUT; o++) {
            double y = 0;
            for (int k = 0; k < IN; k++) {
                double full = w[o * IN + k];
                for (int j = 0; j < RANK; j++) full += 1.5 * B[o * RANK + j] * A[j * IN + k];
                y += x[i * IN + k] * full;
            }
            want[i * OUT + o] = y;
        }
    const tp_tensor in = input(&r, ROWS, IN);
    values_read(r.T, tp_linear_product(r.T, &m, in), got);
    cr_expect_lt(values_error(got, want, ROWS * OUT, 0), device_limit(1e-12, 1e-5));
    const tp_tensor unit = tp_one_hot(r.T, tp_arange(r.T, TP_I32, 0, OUT, 1), OUT, device_real());
    const tp_tensor back = tp_linear_transposed(r.T, &m, unit); /* [OUT,IN] */
    values_read(r.T, tp_linear(r.T, in, back, TP_NONE, TP_ACT_NONE), got);
    cr_expect_lt(values_error(got, want, ROWS * OUT, 0), device_limit(1e-12, 1e-5));
    for (int i = 0; i < ROWS * OUT; i++) want[i] = fmax(0, want[i] + b[i % OUT]);
    values_read(r.T, tp_linear_act(r.T, &m, in, TP_ACT_RELU), got);
    cr_expect_lt(values_error(got, want, ROWS * OUT, 0), device_limit(1e-12, 1e-5));
    const tp_tensor parts =
        tp_concat(r.T, 1, tp_linear_part(r.T, &m, in, 0, 2), tp_linear_part(r.T, &m, in, 1, 2));
    values_read(r.T, tp_relu(r.T, parts), got);
    cr_expect_lt(values_error(got, want, ROWS * OUT, 0), device_limit(1e-12, 1e-5));
    close_rig(&r);
}

/* A bf16 weight of 256 would lose what the adaptation adds; its dropout acts in training. */
Test(lora, transposed_in_bf16)
{
    const double w[] = { 256, 256 }, A[] = { 1 }, B[] = { 0.5, -0.5 };
    const float u[] = { 1, -1 };
    rig r = { .D = device_open(NULL) };
    tp_linear_m m;
    int dropped = 0;
    r.P = tp_params_new(r.D, NULL);
    r.T = tp_tape_new(r.D, &(tp_tape_opts){ .compute = TP_BF16 });
    tp_lora(r.P, &(tp_lora_opts){ .rank = 1, .dropout = 0.5 });
    tp_linear_init(r.P, &m, "fc", 1, 2, false);
    cr_assert(tp_param_set(r.P, m.weight, TP_F64, w, sizeof w) &&
              tp_param_set(r.P, m.lora->a, TP_F64, A, sizeof A) &&
              tp_param_set(r.P, m.lora->b, TP_F64, B, sizeof B));
    for (int k = 0; k < 20; k++) {
        tp_reset(r.T);
        tp_train(r.T, k > 0);
        const tp_tensor in = tp_cast(r.T, tp_from(r.T, TP_F32, TP_SHAPE(1, 2), u), TP_BF16);
        const double y = tp_item(r.T, tp_linear_transposed(r.T, &m, in));
        cr_expect(k ? y == 0 || y == 2 : y == 1, "%d: %g: %s", k, y, tp_why(r.T));
        dropped += k > 0 && y == 0;
    }
    cr_expect(dropped > 0 && dropped < 19, "%d", dropped);
    close_rig(&r);
}

/* All activations are those of the fused op. */
Test(lora, activations)
{
    for (int act = TP_ACT_NONE; act <= TP_ACT_SIGMOID; act++) {
        double got[ROWS * OUT], want[ROWS * OUT];
        rig r = open_rig(&(tp_lora_opts){ .rank = 1 });
        tp_linear_m m;
        tp_linear_init(r.P, &m, "fc", IN, OUT, true); /* B is 0 */
        values_read(r.T, tp_linear_act(r.T, &m, input(&r, ROWS, IN), (tp_act)act), got);
        values_read(r.T, tp_linear(r.T, input(&r, ROWS, IN), m.weight, m.bias, (tp_act)act), want);
        cr_expect_lt(values_error(got, want, ROWS * OUT, 0), device_limit(1e-12, 1e-5), "%d", act);
        close_rig(&r);
    }
}

/* ---- gradients ---- */

typedef struct layers {
    tp_linear_m fc;
    tp_mlp_m mlp;
    tp_glu_mlp_m glu, fused;
    tp_embedding_m table;
    tp_linear_m head;
} layers;

static void init_layers(tp_params *P, layers *m)
{
    static const char *const names[] = { "both", NULL, "down" };
    tp_embedding_init(P, &m->table, "table", OUT, IN);
    tp_linear_init(P, &m->fc, "fc", IN, IN, true);
    tp_mlp_init(P, &m->mlp, "fc1", "fc2", IN, OUT, TP_ACT_GELU, 0.0);
    tp_glu_mlp_init(P, &m->glu, NULL, IN, OUT, false, TP_GLU_SILU, 0.0);
    tp_glu_mlp_init(P, &m->fused, names, IN, OUT, true, TP_GLU_GELU, 0.0);
    tp_linear_tie(P, &m->head, "head", m->table.weight);
}

static tp_tensor loss_of(const rig *r, const layers *m)
{
    tp_tape *T = r->T;
    tp_tensor x = tp_linear_forward(T, &m->fc, input(r, ROWS, IN));
    x = tp_mlp_forward(T, &m->mlp, x, x);
    x = tp_mlp_forward(T, &m->mlp, x, TP_NONE);
    x = tp_glu_mlp_forward(T, &m->glu, x, x);
    x = tp_glu_mlp_forward(T, &m->fused, x, TP_NONE);
    return tp_sum(T, tp_square(T, tp_linear_forward(T, &m->head, x)), TP_ALL);
}

/* Central differences of every adaptation; nothing else has a gradient. */
Test(lora, gradients)
{
    if (device_real() != TP_F64) cr_skip_test("differences need f64");
    rig r = open_rig(&(tp_lora_opts){ .rank = 2, .alpha = 1, .modules = "*" });
    layers m;
    init_layers(r.P, &m);
    draw(r.P);
    tp_train(r.T, true);
    tp_backward(r.T, loss_of(&r, &m));
    cr_assert(tp_ok(r.T), "%s", tp_why(r.T));
    cr_expect_eq(tp_lora_count(r.P), 9);
    int adapted = 0;
    for (tp_param_info it = { 0 }; tp_next_param(r.P, &it);) {
        const bool lora = strstr(it.name, ".lora_") != NULL;
        const int64_t n = tp_numel(it.tensor);
        double value[64], grad[64];
        if (it.alias_of) continue;
        cr_expect_eq(it.frozen, !lora, "%s", it.name);
        cr_expect_eq(it.has_grad, lora, "%s", it.name);
        if (!lora) continue;
        adapted++;
        get(r.P, it.name, value, n);
        cr_assert(tp_param_get_grad(r.P, it.tensor, TP_F64, grad, (size_t)n * sizeof *grad));
        for (int64_t i = 0; i < n; i += 3) {
            double y[2];
            for (int k = 0; k < 2; k++) {
                const double kept = value[i];
                value[i] += k ? 1e-6 : -1e-6;
                cr_assert(tp_param_set(r.P, it.tensor, TP_F64, value, (size_t)n * sizeof *value));
                value[i] = kept;
                tp_reset(r.T);
                y[k] = tp_item(r.T, loss_of(&r, &m));
            }
            cr_assert(tp_param_set(r.P, it.tensor, TP_F64, value, (size_t)n * sizeof *value));
            const double slope = (y[1] - y[0]) / 2e-6;
            cr_expect_float_eq(grad[i], slope, 1e-5 * (1 + fabs(slope)), "%s[%d]: %g, not %g",
                               it.name, (int)i, grad[i], slope);
        }
    }
    cr_expect_eq(adapted, 18);
    close_rig(&r);
}

/* Rows of initial values are for the weights: with B = 0 the function is theirs. */
Test(lora, initial_values_by_name)
{
    static const tp_init_row rows[] = { { "*.weight", { TP_INIT_CONST, 0.5, 0.0 } }, { 0 } };
    rig r = open_rig(&(tp_lora_opts){ .rank = 2 });
    tp_linear_m m;
    double w[OUT * IN], b[2 * OUT], a[2 * IN];
    tp_init_by_name(r.P, rows);
    tp_linear_init(r.P, &m, "fc", IN, OUT, false);
    get(r.P, "fc.weight", w, OUT * IN);
    get(r.P, "fc.lora_A.weight", a, 2 * IN);
    get(r.P, "fc.lora_B.weight", b, 2 * OUT);
    cr_expect(w[3] == 0.5 && b[3] == 0 && a[3] != 0.5 && fabs(a[3]) <= 1 / sqrt(IN));
    close_rig(&r);
}

/* A step changes the adaptations only; dropout acts in training only. */
/* Each parameter's bytes in a block of moments. */
static size_t trained_bytes(const tp_params *P)
{
    size_t sum = 0;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);)
        if (!it.frozen && !it.buffer && !it.alias_of)
            sum += ((size_t)tp_numel(it.tensor) * tp_dtype_size(device_real()) + 255) / 256 * 256;
    return sum;
}

Test(lora, training)
{
    rig r = open_rig(&(tp_lora_opts){ .rank = 2, .dropout = 0.5, .train = "fc.bias" });
    layers m;
    double before[2][IN * IN], after[2][IN * IN], y[3];
    init_layers(r.P, &m);
    draw(r.P);
    get(r.P, "fc.weight", before[0], IN * IN);
    get(r.P, "fc.bias", before[1], IN);
    for (int k = 0; k < 3; k++) {
        tp_reset(r.T);
        tp_train(r.T, k > 0);
        y[k] = tp_item(r.T, loss_of(&r, &m));
    }
    cr_expect(y[0] != y[1] && y[1] != y[2], "%g %g %g", y[0], y[1], y[2]);
    tp_optim *O = tp_optim_new(r.P, "adamw", NULL);
    cr_expect_eq(tp_optim_bytes(O), 2 * trained_bytes(r.P), "frozen weights have no moments");
    tp_reset(r.T);
    tp_backward(r.T, loss_of(&r, &m));
    cr_assert(tp_step(O, 0.01), "%s", tp_params_why(r.P));
    get(r.P, "fc.weight", after[0], IN * IN);
    get(r.P, "fc.bias", after[1], IN);
    cr_expect_arr_eq(before[0], after[0], sizeof before[0]);
    cr_expect_neq(before[1][0], after[1][0], "it is in `train`");
    cr_expect(!tp_given(tp_find(r.P, "head.lora_A.weight")), "a tied head only by name");
    tp_optim_free(O);
    close_rig(&r);
}

/* ---- models ---- */

typedef struct model_rig {
    rig r;
    tp_net *net;
} model_rig;

static model_rig open_model(const tp_model_cfg *c, const tp_lora_opts *o)
{
    model_rig x = { .r = open_rig(o) };
    x.net = tp_net_new(x.r.P, "", c);
    cr_assert(tp_params_ok(x.r.P), "%s", tp_params_why(x.r.P));
    draw(x.r.P);
    cr_assert(tp_params_ok(x.r.P), "%s", tp_params_why(x.r.P));
    return x;
}

static void close_model(model_rig *x)
{
    tp_net_free(x->net);
    close_rig(&x->r);
}

static int64_t read_logits(const model_rig *x, double *to)
{
    static const int32_t ids[] = { 4, 3, 9, 7, 5, 1, 0, 2 };
    const tp_model_cfg *c = tp_net_cfg(x->net);
    double pixels[2 * 32 * 32 * 3];
    tp_tensor in;
    tp_reset(x->r.T);
    if (c->model->input == TP_IMAGES) {
        const tp_common_cfg o = tp_model_get(c);
        const tp_shape s = TP_SHAPE(2, o.image[0], o.image[1], 3);
        values_random(pixels, 2 * o.image[0] * o.image[1] * 3, 8);
        in = values_constant(x->r.T, device_real(), s, pixels);
    } else {
        in = tp_from(x->r.T, TP_I32, TP_SHAPE(2, 4), ids);
    }
    const tp_tensor z = tp_net_forward(x->r.T, x->net, NULL, in);
    cr_assert(tp_ok(x->r.T), "%s", tp_why(x->r.T));
    values_read(x->r.T, z, to);
    return tp_numel(z);
}

static const tp_gpt_cfg small = { .vocab = 11,
                                  .dim = 12,
                                  .hidden = 20,
                                  .layers = 2,
                                  .heads = 2,
                                  .positions = 8,
                                  .base = 1000,
                                  .eps = 1e-5 };

/* Fused queries, keys and values (ViT), separate ones, gates. */
static tp_model_cfg model(int k)
{
    tp_model_cfg c;
    char why[300];
    if (k < 2) return tp_model_cfg_of(k ? &tp_model_llama : &tp_model_gpt2, &small);
    cr_assert(tp_model_preset(&c, k == 2 ? "deit-t" : "roberta-mini", why, sizeof why), "%s", why);
    cr_assert(tp_model_change(&c,
                              k == 2 ? "dim=24,heads=2,depth=2,patch=8,num_classes=5"
                                     : "num_hidden_layers=2,hidden_size=24,num_attention_heads=2,"
                                       "intermediate_size=32,vocab_size=12",
                              NULL, why, sizeof why),
              "%s", why);
    tp_common_cfg o = tp_model_get(&c);
    o.image[0] = o.image[1] = k == 2 ? 32 : 0;
    tp_model_set(&c, &o);
    return c;
}
enum { MODELS = 4 };

enum { MOST = 4096 };

/* Merging changes no logit; nor does a file applied to the weights alone. */
Test(lora, merged_weights_compute_the_same)
{
    for (int k = 0; k < MODELS; k++) {
        const tp_model_cfg c = model(k);
        static double own[MOST], merged[MOST], applied[MOST], bare[MOST];
        model_rig x = open_model(&c, &(tp_lora_opts){ .rank = 3, .alpha = 2 });
        model_rig plain = open_model(&c, NULL);
        cr_expect_gt(tp_lora_count(x.r.P), 8, "%d", k);
        const int64_t n = read_logits(&x, own);
        cr_assert(n <= MOST);
        for (tp_param_info it = { 0 }; tp_next_param(plain.r.P, &it);) {
            const int64_t m = tp_numel(it.tensor);
            if (it.alias_of || it.buffer) continue;
            double *v = malloc((size_t)m * sizeof *v);
            get(x.r.P, it.name, v, m);
            cr_assert(tp_param_set(plain.r.P, it.tensor, TP_F64, v, (size_t)m * sizeof *v));
            free(v);
        }
        read_logits(&plain, bare);
        cr_assert(tp_lora_save(x.r.P, in_folder("adapter.safetensors")), "%s",
                  tp_params_why(x.r.P));
        tp_file *F = tp_file_open(in_folder("adapter.safetensors"));
        cr_assert(tp_lora_apply(plain.r.P, F, 0), "%s", tp_params_why(plain.r.P));
        tp_file_close(F);
        read_logits(&plain, applied);
        cr_assert(tp_lora_merge(x.r.P), "%s", tp_params_why(x.r.P));
        read_logits(&x, merged);
        cr_expect_gt(values_error(own, bare, n, 0), 1e-3, "%d: they matter", k);
        cr_expect_lt(values_error(own, merged, n, 0), device_limit(1e-11, 1e-4), "%d", k);
        cr_expect_lt(values_error(own, applied, n, 0), device_limit(1e-11, 1e-4), "%d", k);
        close_model(&x);
        close_model(&plain);
    }
}

/* ---- files ---- */

static int64_t bytes_of(const char *path)
{
    struct stat s;
    cr_assert_eq(stat(path, &s), 0);
    return (int64_t)s.st_size;
}

/* Names of peft, small, and loaded as they were, also below another prefix. */
Test(lora, files)
{
    const tp_model_cfg c = model(0);
    const tp_lora_opts o = { .rank = 2, .alpha = 4, .modules = "q_proj,v_proj", .train = "ln_f.*" };
    model_rig x = open_model(&c, &o), y = open_model(&c, &o);
    static double want[MOST], got[MOST];
    char path[600], moved[600];
    snprintf(path, sizeof path, "%s", in_folder("a.safetensors"));
    snprintf(moved, sizeof moved, "%s", in_folder("b.safetensors"));
    cr_expect_eq(tp_lora_count(x.r.P), 4);
    cr_assert(tp_lora_save(x.r.P, path), "%s", tp_params_why(x.r.P));
    tp_file *F = tp_file_open(path);
    cr_expect_eq(tp_file_count(F), 2 * 4 + 2);
    cr_expect_str_eq(tp_file_meta(F, "lora.rank"), "2");
    const tp_file_tensor *t = tp_file_find(F, "base_model.model.h.1.attn.v_proj.lora_B.weight");
    cr_assert(t && t->shape.dim[0] == 12 && t->shape.dim[1] == 2);
    cr_assert(tp_file_find(F, "base_model.model.ln_f.weight"));
    int64_t values = 0;
    for (int i = 0; i < tp_file_count(F); i++) values += tp_file_at(F, i)->numel;
    cr_expect_eq(values, 4 * 2 * 2 * 12 + 2 * 12);
    cr_expect_lt(bytes_of(path), 8 * values + 3000);

    tp_writer *W = tp_writer_new(moved); /* as transformers names the model */
    for (int i = 0; i < tp_file_count(F); i++) {
        char name[200];
        double v[64];
        const tp_file_tensor *u = tp_file_at(F, i);
        cr_assert(tp_file_read(F, u, TP_F64, v));
        for (int k = 0; k < u->numel; k++) v[k] += 0.25;
        snprintf(name, sizeof name, "base_model.model.transformer.%s", u->name + 17);
        tp_writer_add(W, name, TP_F64, u->shape, v, true);
    }
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    tp_file_close(F);

    const int64_t n = read_logits(&x, want);
    F = tp_file_open(moved);
    cr_assert(tp_lora_load(y.r.P, F), "%s", tp_params_why(y.r.P));
    tp_file_close(F);
    read_logits(&y, got);
    cr_expect_gt(values_error(got, want, n, 0), 1e-3);
    F = tp_file_open(path);
    cr_assert(tp_lora_load(y.r.P, F), "%s", tp_params_why(y.r.P));
    tp_file_close(F);
    read_logits(&y, got);
    cr_expect_arr_eq(got, want, (size_t)n * sizeof *got);

    cr_assert(tp_save(x.r.P, path)); /* a whole file has both; the base alone is enough, too */
    cr_assert(tp_load(y.r.P, path, NULL), "%s", tp_params_why(y.r.P));
    model_rig plain = open_model(&c, NULL);
    cr_assert(tp_save(plain.r.P, path));
    cr_assert(tp_load(y.r.P, path, NULL), "%s", tp_params_why(y.r.P));
    close_model(&plain);
    close_model(&x);
    close_model(&y);
}

/* ---- refusals ---- */

static void expect_failure(tp_lora_opts o, const char *message)
{
    rig r = open_rig(&o);
    layers m;
    init_layers(r.P, &m);
    cr_expect_eq(tp_params_hash(r.P), 0);
    cr_expect(strstr(tp_params_why(r.P), message), "%s", tp_params_why(r.P));
    close_rig(&r);
}

Test(lora, impossible_options)
{
    expect_failure((tp_lora_opts){ .rank = 0 }, "a rank of 0; give at least 1");
    expect_failure((tp_lora_opts){ .rank = 1, .alpha = -1 }, "alpha is -1");
    expect_failure((tp_lora_opts){ .rank = 1, .dropout = 1 }, "a dropout of 1");
    expect_failure((tp_lora_opts){ .rank = 1, .modules = "nothing" },
                   "no linear module matches 'nothing'");
    rig r = open_rig(&(tp_lora_opts){ .rank = 1 });
    tp_lora(r.P, &(tp_lora_opts){ .rank = 1 });
    cr_expect(strstr(tp_params_why(r.P), "have adaptations already"), "%s", tp_params_why(r.P));
    close_rig(&r);
    r = open_rig(NULL);
    tp_lora(r.P, NULL);
    cr_expect(strstr(tp_params_why(r.P), "in place of the options"), "%s", tp_params_why(r.P));
    close_rig(&r);
    tp_lora(NULL, NULL);
    cr_expect_eq(tp_lora_count(NULL), 0);
    cr_expect_null(tp_lora_declare(NULL, TP_NONE, false));
    cr_expect(!tp_lora_save(NULL, "x") && !tp_lora_load(NULL, NULL) && !tp_lora_merge(NULL) &&
              !tp_lora_apply(NULL, NULL, 0) && !tp_lora_write(NULL, NULL));
}

static void expect_refusal_of(bool answer, tp_params *P, const char *message)
{
    cr_expect_not(answer, "%s", message);
    cr_expect(tp_params_ok(P) && strstr(tp_params_why(P), message), "%s", tp_params_why(P));
}

Test(lora, refused_files)
{
    rig plain = open_rig(NULL), r = open_rig(&(tp_lora_opts){ .rank = 2, .modules = "fc,head" }),
        other = open_rig(&(tp_lora_opts){ .rank = 3, .modules = "fc1" });
    layers m, n, o;
    char path[600], base[600];
    init_layers(r.P, &m);
    init_layers(plain.P, &n);
    init_layers(other.P, &o);
    snprintf(path, sizeof path, "%s", in_folder("a.safetensors"));
    snprintf(base, sizeof base, "%s", in_folder("base.safetensors"));
    cr_assert(tp_lora_save(r.P, path) && tp_save(plain.P, base));
    expect_refusal_of(tp_lora_merge(r.P), r.P, "head.weight is also table.weight");
    expect_refusal_of(tp_lora_save(plain.P, path), plain.P, "have no adaptations; call tp_lora");
    expect_refusal_of(tp_lora_merge(plain.P), plain.P, "have no adaptations");
    tp_file *F = tp_file_open(path);
    expect_refusal_of(tp_lora_apply(plain.P, F, 0), plain.P, "head.weight is also table.weight");
    expect_refusal_of(tp_lora_apply(r.P, F, 0), r.P, "have adaptations themselves");
    expect_refusal_of(tp_lora_load(plain.P, F), plain.P, "have no adaptations");
    expect_refusal_of(tp_lora_load(other.P, F), other.P,
                      "its alpha is 2, that of the parameters 3");
    tp_file_close(F);
    F = tp_file_open(base);
    expect_refusal_of(tp_lora_apply(plain.P, F, 0), plain.P, "base.safetensors has no adaptations");
    expect_refusal_of(tp_lora_load(r.P, F), r.P, "missing: fc.lora_A.weight");
    tp_file_close(F);
    F = tp_file_open(in_folder("none"));
    expect_refusal_of(tp_lora_apply(plain.P, F, 0), plain.P, "none");
    expect_refusal_of(tp_lora_load(r.P, F), r.P, "none");
    tp_file_close(F);
    static const struct {
        const char *name;
        tp_shape shape;
        const char *message;
    } bad[] = {
        { "x.lora_A.weight", { 2, { 2, IN } }, "x.lora_A.weight belongs to no parameter" },
        { "fc.lora_A.weight", { 2, { 2, IN } }, "do not fit the weight fc.weight" },
        { "fc.lora_B.weight", { 2, { IN, 2 } }, "fc.lora_B.weight has no lora_A.weight" },
    };
    for (int k = 0; k < 3; k++) {
        const double values[2 * IN] = { 0 };
        tp_writer *W = tp_writer_new(path);
        tp_writer_add(W, bad[k].name, TP_F64, bad[k].shape, values, true);
        cr_assert(tp_writer_commit(W));
        tp_writer_free(W);
        F = tp_file_open(path);
        expect_refusal_of(tp_lora_apply(plain.P, F, 0), plain.P, bad[k].message);
        expect_refusal_of(tp_lora_apply(plain.P, F, -1), plain.P, "alpha is -1");
        tp_file_close(F);
    }
    close_rig(&r);
    close_rig(&plain);
    close_rig(&other);
}
