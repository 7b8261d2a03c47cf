/* support_models.c - expectations that image models of the table share. */
#include "support_models.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_device.h"

static tp_model_cfg preset(const char *name)
{
    tp_model_cfg c;
    char why[512];
    cr_assert(tp_model_preset(&c, name, why, sizeof why), "%s: %s", name, why);
    return c;
}

static tp_tensor images(tp_tape *T, int64_t B, int64_t height, int64_t width)
{
    const int64_t n = B * height * width * 3;
    float *x = malloc((size_t)n * sizeof *x);
    cr_assert(x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i * 37 % 101) / 50.0F - 1.0F;
    const tp_tensor y = tp_from(T, TP_F32, TP_SHAPE(B, height, width, 3), x);
    free(x);
    return y;
}

/* ---- counts ---- */

void expect_counts(const model_count *rows)
{
    tp_device *D = device_open(&(tp_device_opts){ .dry = true });
    for (; rows->name; rows++) {
        const tp_model_row *row = tp_model_find(rows->name);
        tp_model_cfg c = preset(rows->name);
        tp_common_cfg o = tp_model_get(&c);
        tp_params *P = tp_params_new(D, NULL);
        o.outputs = rows->classes;
        tp_model_set(&c, &o);
        tp_net *N = tp_net_new(P, "", &c);
        cr_expect(tp_params_count(P) == rows->params, "%s: %lld parameters %s", rows->name,
                  (long long)tp_params_count(P), tp_params_why(P));
        tp_net_free(N);
        tp_params_free(P);
        const tp_flops f = tp_model_flops(&c, 0, 0);
        const double table = f.paper + row->norm_cost * f.norm + 2.0 * f.batchnorm;
        if (rows->macs > 0.0) cr_expect(f.macs == rows->macs, "%s: %.0f", rows->name, f.macs);
        if (rows->table > 0.0) cr_expect(table == rows->table, "%s: %.0f", rows->name, table);
    }
    tp_device_close(D);
}

int parameter_tensors(const char *name)
{
    const tp_model_cfg c = preset(name);
    tp_device *D = device_open(&(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_net *N = tp_net_new(P, "", &c);
    int n = 0;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) n += !it.buffer && !it.alias_of;
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
    return n;
}

void expect_activations(const char *name, tp_recompute recompute, double share)
{
    tp_model_cfg c = preset(name);
    tp_common_cfg o = tp_model_get(&c);
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1, .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true });
    size_t before = 0;
    o.recompute = recompute;
    o.drop_path = 0.0;
    tp_model_set(&c, &o);
    tp_net *N = tp_net_new(P, "", &c);
    for (int k = 0; k < 2; k++) {
        tp_reset(T);
        before = tp_device_stats(D).live_bytes;
        tp_net_forward(T, N, NULL, images(T, 1, o.image[0], o.image[1]));
        cr_assert(tp_ok(T), "%s: %s", name, tp_why(T));
    }
    const double held = (double)(tp_device_stats(D).live_bytes - before);
    const double want = tp_model_activations(&c, 0, 0);
    cr_expect(fabs(held / want - 1.0) < share, "%s, recomputation %d: %g bytes, closed form %g",
              name, (int)recompute, held, want);
    tp_net_free(N);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

/* ---- values ---- */

/* Mean and standard deviation of a parameter. */
static void moments(tp_params *P, const char *name, double *mean, double *deviation)
{
    const tp_tensor t = tp_find(P, name);
    const int64_t n = tp_given(t) ? tp_numel(t) : 0;
    double *x = malloc((size_t)(n + 1) * sizeof *x), sum = 0.0, squares = 0.0;
    cr_assert(x && n > 0, "%s", name);
    cr_assert(tp_param_get(P, t, TP_F64, x, (size_t)n * sizeof *x), "%s", name);
    for (int64_t i = 0; i < n; i++) sum += x[i];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    *deviation = sqrt(squares / (double)n);
    free(x);
}

void expect_initial_values(const char *name, const initial_value *rows)
{
    const tp_model_cfg c = preset(name);
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 3 });
    tp_net *N = tp_net_new(P, "", &c);
    for (; rows->name; rows++) {
        double mean, deviation;
        moments(P, rows->name, &mean, &deviation);
        cr_expect(fabs(mean - rows->mean) < 1e-6 + 0.25 * rows->deviation &&
                      fabs(deviation - rows->deviation) < 1e-6 + 0.2 * rows->deviation,
                  "%s: mean %g, deviation %g", rows->name, mean, deviation);
    }
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
}

/* The loss and the gradient norm of a step. */
static void step_with(const char *name, tp_recompute recompute, double out[2])
{
    tp_model_cfg c = preset(name);
    tp_common_cfg o = tp_model_get(&c);
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 5 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 6, .train = true });
    const int32_t label[] = { 1, 2, 3 };
    o.recompute = recompute;
    o.drop_path = 0.5;
    tp_model_set(&c, &o);
    tp_net *N = tp_net_new(P, "", &c);
    const tp_tensor logits = tp_net_forward(T, N, NULL, images(T, 3, o.image[0], o.image[1]));
    const tp_tensor y = tp_from(T, TP_I32, TP_SHAPE(3), label);
    const tp_tensor loss = tp_cross_entropy(T, logits, y, TP_MEAN);
    tp_backward(T, loss);
    out[0] = tp_item(T, loss);
    out[1] = tp_item(T, tp_clip_grad_norm(P, 0.0));
    cr_expect(tp_ok(T), "%s: %s", name, tp_why(T));
    tp_net_free(N);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

void expect_equal_recomputation(const char *name)
{
    double plain[2], attention[2], block[2];
    step_with(name, TP_RECOMPUTE_NONE, plain);
    step_with(name, TP_RECOMPUTE_ATTENTION, attention);
    step_with(name, TP_RECOMPUTE_BLOCK, block);
    for (int i = 0; i < 2; i++)
        cr_expect(isfinite(plain[i]) && plain[i] == attention[i] && plain[i] == block[i],
                  "%s, number %d: %.9g, %.9g, %.9g", name, i, plain[i], attention[i], block[i]);
}

/* ---- sizes, refusals ---- */

void expect_image_sizes(const char *name, const image_case *rows)
{
    const tp_model_cfg c = preset(name);
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    tp_net *N = tp_net_new(P, "", &c);
    for (; rows->height; rows++) {
        tp_tape *T = tp_tape_new(D, NULL);
        const tp_tensor y = tp_net_forward(T, N, NULL, images(T, 1, rows->height, rows->width));
        if (rows->message)
            cr_expect(strstr(tp_why(T), rows->message), "%s at %lld x %lld: %s", name,
                      (long long)rows->height, (long long)rows->width, tp_why(T));
        else
            cr_expect(tp_ok(T) && tp_dim(y, 1) == tp_model_get(&c).outputs, "%s: %s", name,
                      tp_why(T));
        tp_tape_free(T);
    }
    tp_tape *T = tp_tape_new(D, NULL);
    tp_net_forward(T, N, NULL, tp_full(T, TP_F32, TP_SHAPE(1, 3, 64, 64), 0.0));
    cr_expect(strstr(tp_why(T), "images must be [batch,height,width,3]"), "%s", tp_why(T));
    tp_tape_free(T);
    tp_net_free(N);
    tp_params_free(P);
    tp_device_close(D);
}

void expect_impossible(const tp_model *model, const void *cfg, const impossible *rows)
{
    tp_device *D = device_open(&(tp_device_opts){ .dry = true });
    tp_model_cfg c = { .model = model };
    char why[256];
    memcpy(&c.at, cfg, model->cfg_size);
    cr_assert(tp_model_check(&c, why, sizeof why), "%s", why);
    for (; rows->message; rows++) {
        tp_model_cfg bad = c;
        if (rows->is_int)
            *(int *)(void *)(bad.at.bytes + rows->at) = (int)rows->value;
        else
            *(int64_t *)(void *)(bad.at.bytes + rows->at) = rows->value;
        cr_expect(!tp_model_check(&bad, why, sizeof why), "%s", rows->message);
        cr_expect(strstr(why, rows->message), "%s: %s", rows->message, why);

        tp_params *P = tp_params_new(D, NULL);
        tp_tape *T = tp_tape_new(D, NULL);
        tp_net *N = tp_net_new(P, "", &bad);
        cr_expect(strstr(tp_params_why(P), rows->message), "%s", tp_params_why(P));
        tp_net_forward(T, N, NULL, tp_full(T, TP_F32, TP_SHAPE(1, 32, 32, 3), 0.0));
        cr_expect(strstr(tp_why(T), rows->message), "%s", tp_why(T));
        tp_net_free(N);
        tp_tape_free(T);
        tp_params_free(P);
    }
    tp_device_close(D);
}

void expect_null_refused(const char *(*init)(int i, tp_params *P),
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
