/* models.c - measures and checks image models. */
#include "support/models.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/device.h"

tp_model_cfg models_preset(const char *name)
{
    tp_model_cfg c;
    char why[512] = "";
    cr_assert(tp_model_preset(&c, name, why, sizeof why), "%s: %s", name, why);
    return c;
}

tp_model_cfg models_dropping(const char *name, double rate)
{
    tp_model_cfg c = models_preset(name);
    tp_common_cfg o = tp_model_get(&c);
    o.drop_path = rate;
    tp_model_set(&c, &o);
    return c;
}

/* ---- counts ---- */

void models_expect_count(const tp_model_cfg *c, int64_t n)
{
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_net *N = tp_net_new(P, "", c);
    cr_expect(tp_params_count(P) == n, "%lld parameters, not %lld: %s",
              (long long)tp_params_count(P), (long long)n, tp_params_why(P));
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
}

void models_expect_costs(const models_costs *rows)
{
    for (; rows->name; rows++) {
        const tp_model_row *row = tp_model_find(rows->name);
        tp_model_cfg c = models_preset(rows->name);
        tp_common_cfg o = tp_model_get(&c);
        o.outputs = rows->classes;
        tp_model_set(&c, &o);
        models_expect_count(&c, rows->params);
        const tp_cost f = tp_model_cost(&c, 0, 0);
        const double table = f.paper + row->norm_cost * f.norm + 2.0 * f.batchnorm;
        if (rows->macs > 0.0) cr_expect(f.macs == rows->macs, "%s: %.0f", rows->name, f.macs);
        if (rows->table > 0.0) cr_expect(table == rows->table, "%s: %.0f", rows->name, table);
    }
}

int models_tensors(const tp_model_cfg *c)
{
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_net *N = tp_net_new(P, "", c);
    int n = 0;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) n += !it.buffer && !it.alias_of;
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
    return n;
}

/* ---- images ---- */

tp_tensor models_images(tp_tape *T, int64_t n, int64_t H, int64_t W)
{
    const int64_t count = n * H * W * 3;
    float *x = malloc((size_t)count * sizeof *x);
    cr_assert(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)sin(0.37 * (double)i + 1e-4 * (double)(i * i % 977));
    const tp_tensor y = tp_from(T, TP_F32, TP_SHAPE(n, H, W, 3), x);
    free(x);
    return y;
}

static void set_recompute(tp_model_cfg *c, tp_recompute mode)
{
    tp_common_cfg o = tp_model_get(c);
    o.recompute = mode;
    tp_model_set(c, &o);
}

/* ---- memory ---- */

/* samples: of the batch. */
static double kept(const tp_model_cfg *c, int64_t samples, tp_dtype compute)
{
    const tp_common_cfg o = tp_model_get(c);
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true, .exact = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = compute, .train = true });
    tp_net *N = tp_net_new(P, "", c);
    const tp_shape images = TP_SHAPE(samples, o.image[0], o.image[1], 3);
    tp_net_forward(T, N, NULL, tp_full(T, TP_F32, images, 0.0));
    cr_assert(tp_ok(T), "%s", tp_why(T));
    const size_t first = tp_device_stats(D).live_bytes;
    tp_reset(T);
    const double bytes = (double)(first - tp_device_stats(D).live_bytes);
    tp_net_free(N);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
    return bytes;
}

void models_expect_memory(const char *name, const tp_model_cfg *c)
{
    for (int mode = TP_RECOMPUTE_NONE; mode <= TP_RECOMPUTE_BLOCK; mode++) {
        tp_model_cfg each = *c;
        set_recompute(&each, (tp_recompute)mode);
        const double want = tp_model_cost(&each, 0, 0).saved, got = kept(&each, 1, TP_F32);
        cr_expect(fabs(got / want - 1.0) < 0.03, "%s, recomputation %d: %g bytes, said %g", name,
                  mode, got, want);
        const double less = tp_model_saved_bytes(&each, 0, 0, TP_BF16);
        const double more = kept(&each, 2, TP_BF16) - kept(&each, 1, TP_BF16);
        cr_expect(fabs(more / less - 1.0) < 0.03 && less < (mode ? 1.0 : 0.75) * want,
                  "%s, recomputation %d: %g bytes a sample in bf16, said %g; %g in f32", name, mode,
                  more, less, want);
    }
}

/* ---- recomputation ---- */

typedef struct step {
    double loss;
    float *values;  /* gradients and buffers */
    size_t n, kept; /* bytes after forward */
} step;

static void copy_values(tp_params *P, step *s)
{
    size_t room = 0;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) room += (size_t)tp_numel(it.tensor);
    s->values = malloc(room * sizeof(float));
    cr_assert(s->values);
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const size_t n = (size_t)tp_numel(it.tensor), bytes = n * sizeof(float);
        float *to = s->values + s->n;
        if (it.dtype != TP_F32 || it.frozen) continue;
        cr_assert(it.buffer ? tp_param_get(P, it.tensor, TP_F32, to, bytes)
                            : tp_param_get_grad(P, it.tensor, TP_F32, to, bytes),
                  "%s: %s", it.name, tp_params_why(P));
        s->n += n;
    }
}

static step train(const tp_model_cfg *c)
{
    const tp_common_cfg o = tp_model_get(c);
    const int64_t labels[] = { 3, 1 };
    step s = { 0 };
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 3 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 5, .train = true });
    tp_net *N = tp_net_new(P, "", c);
    const tp_tensor x = models_images(T, 2, o.image[0], o.image[1]);
    const tp_tensor logits = tp_net_forward(T, N, NULL, x);
    const tp_tensor y = tp_from(T, TP_I64, TP_SHAPE(2), labels);
    const tp_tensor loss = tp_cross_entropy(T, logits, y, TP_MEAN);
    s.loss = tp_item(T, loss);
    s.kept = tp_device_stats(D).live_bytes;
    tp_backward(T, loss);
    cr_assert(tp_ok(T), "%s", tp_why(T));
    copy_values(P, &s);
    tp_net_free(N);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
    return s;
}

void models_expect_recomputation(const char *name, const tp_model_cfg *c, bool attention)
{
    step plain = train(c);
    for (int mode = TP_RECOMPUTE_ATTENTION; mode <= TP_RECOMPUTE_BLOCK; mode++) {
        tp_model_cfg each = *c;
        set_recompute(&each, (tp_recompute)mode);
        step s = train(&each);
        cr_expect(s.loss == plain.loss, "%s, mode %d: loss %g, not %g", name, mode, s.loss,
                  plain.loss);
        cr_expect(s.n == plain.n && memcmp(s.values, plain.values, s.n * sizeof(float)) == 0,
                  "%s, mode %d: gradients or buffers", name, mode);
        if (attention || mode == TP_RECOMPUTE_BLOCK)
            cr_expect(s.kept < plain.kept, "%s, mode %d: %zu bytes, %zu without", name, mode,
                      s.kept, plain.kept);
        free(s.values);
    }
    free(plain.values);
}

/* ---- initial values ---- */

static void expect_moments(tp_params *P, const models_moments *row)
{
    const tp_tensor t = tp_find(P, row->name);
    const int64_t n = tp_given(t) ? tp_numel(t) : 0;
    double *x = malloc((size_t)(n + 1) * sizeof *x), mean = 0.0, deviation = 0.0;
    cr_assert(x && n > 0 && tp_param_get(P, t, TP_F64, x, (size_t)n * sizeof *x), "%s", row->name);
    for (int64_t i = 0; i < n; i++) mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) deviation += (x[i] - mean) * (x[i] - mean) / (double)n;
    deviation = sqrt(deviation);
    const double near = 4.0 * row->deviation / sqrt((double)n) + 1e-9;
    cr_expect(fabs(mean - row->mean) <= near && fabs(deviation - row->deviation) <= near,
              "%s: %lld values of mean %g, deviation %g", row->name, (long long)n, mean, deviation);
    free(x);
}

void models_expect_initial(const tp_model_cfg *c, const models_moments *rows)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 7 });
    tp_net *N = tp_net_new(P, "", c);
    cr_assert(tp_params_ok(P), "%s", tp_params_why(P));
    for (; rows->name; rows++) expect_moments(P, rows);
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- sizes and refusals ---- */

bool models_load(const tp_model *model, tp_params *P, const void *m, const char *path)
{
    tp_file *F = tp_file_open(path);
    const bool ok = model->load(P, m, F);
    tp_file_close(F);
    return ok;
}

void models_expect_sizes(const char *name, const tp_model_cfg *c, const int64_t sizes[][2])
{
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .check_finite = true });
    tp_net *N = tp_net_new(P, "", c);
    for (int i = 0; sizes[i][0]; i++) {
        tp_reset(T);
        const tp_tensor x = models_images(T, 1, sizes[i][0], sizes[i][1]);
        const tp_tensor y = tp_net_forward(T, N, NULL, x);
        tp_backward(T, tp_sum(T, y, TP_ALL));
        cr_expect(tp_ok(T) && tp_dim(y, 0) == 1 && tp_dim(y, 1) == tp_model_get(c).outputs,
                  "%s, %lld x %lld: %s", name, (long long)sizes[i][0], (long long)sizes[i][1],
                  tp_why(T));
    }
    tp_net_free(N);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

void models_expect_no_sizes(const char *name, const tp_model_cfg *c, const models_size *rows)
{
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_net *N = tp_net_new(P, "", c);
    for (; rows->height; rows++) {
        tp_clear(T);
        tp_net_forward(T, N, NULL, models_images(T, 1, rows->height, rows->width));
        cr_expect(strstr(tp_why(T), rows->message), "%s, %lld x %lld: %s", name,
                  (long long)rows->height, (long long)rows->width, tp_why(T));
    }
    tp_clear(T);
    tp_net_forward(T, N, NULL, tp_full(T, TP_F32, TP_SHAPE(1, 3, 64, 64), 0.0));
    cr_expect(strstr(tp_why(T), "images must be [batch,height,width,3]"), "%s", tp_why(T));
    tp_net_free(N);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

void models_expect_refused(const tp_model_cfg *c, const char *text)
{
    char why[512] = "";
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_net *N = tp_net_new(P, "", c);
    cr_expect(!tp_model_check(c, why, sizeof why) && strstr(why, text), "'%s': %s", text, why);
    cr_expect(strstr(tp_params_why(P), text), "'%s': %s", text, tp_params_why(P));
    tp_net_forward(T, N, NULL, tp_full(T, TP_F32, TP_SHAPE(1, 32, 32, 3), 0.0));
    cr_expect(strstr(tp_why(T), text), "'%s': %s", text, tp_why(T));
    tp_net_free(N);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

void models_expect_impossible(const tp_model *model, const void *cfg, const models_member *rows)
{
    char why[512];
    tp_model_cfg c = { .model = model };
    memcpy(&c.at, cfg, model->cfg_size);
    cr_assert(tp_model_check(&c, why, sizeof why), "%s", why);
    for (; rows->message; rows++) {
        tp_model_cfg bad = c;
        void *member = bad.at.bytes + rows->at;
        if (rows->is_int)
            *(int *)member = (int)rows->value;
        else
            *(int64_t *)member = rows->value;
        models_expect_refused(&bad, rows->message);
    }
}

void models_expect_null_refused(const char *(*init)(int i, tp_params *P),
                                const char *(*forward)(int i, tp_tape *T, tp_tensor x))
{
    tp_device *D = device_open(&(tp_device_opts){ .dry = true });
    tp_tape *T = tp_tape_new(D, NULL);
    const char *name = "";
    char want[128];
    for (int i = 0; name; i++) {
        tp_params *P = tp_params_new(D, NULL);
        if ((name = init(i, P))) {
            snprintf(want, sizeof want, "%s: NULL was given in place of a module", name);
            cr_expect_str_eq(tp_params_why(P), want);
        }
        tp_params_free(P);
    }
    name = "";
    for (int i = 0; name; i++) {
        tp_clear(T);
        if ((name = forward(i, T, tp_full(T, TP_F32, TP_SHAPE(1), 0.0)))) {
            snprintf(want, sizeof want, "%s: NULL was given in place of a module", name);
            cr_expect(strstr(tp_why(T), want), "%s: %s", name, tp_why(T));
        }
    }
    tp_tape_free(T);
    tp_device_close(D);
}
