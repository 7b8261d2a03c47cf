/* op_case.c - runs a case of bench_ops: its inputs, its call, and steps that are timed on the CPU
 * or on a GPU. */
#include "op_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/op.h>

#include "timing.h"
#include "tools/op_calls/op_calls.h"

static bool is_there(const op_input *in)
{
    return in->none || in->shape.ndim > 0;
}

static int inputs(const op_case *k)
{
    int n = 0;
    while (n < OP_MAX_IN && is_there(&k->in[n])) n++;
    return n;
}

/* ---- calls by name (tools/op_calls/op_calls.h) ---- */

/* The value of an argument, up to a space; NULL: it is missing. */
static const char *value_of(const void *args, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = args; at && *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncmp(at, name, n) == 0 && at[n] == '=') return at + n + 1;
    return NULL;
}

static int numbers(const void *args, const char *name, int max, double *out)
{
    const char *at = value_of(args, name);
    int n = 0;
    if (!at) return -1;
    for (char *end; n < max; at = end + 1) {
        out[n++] = strtod(at, &end);
        if (*end != ',') break;
    }
    return n;
}

static const char *text(const void *args, const char *name)
{
    static char word[32];
    const char *at = value_of(args, name);
    if (!at) return NULL;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(at, " "), at);
    return word;
}

static const char *name_at(const void *args, int i)
{
    static char word[32];
    const char *at = args;
    for (; at && *at && i > 0; i--) at += strcspn(at, " "), at += *at == ' ';
    if (!at || !*at) return NULL;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(at, "="), at);
    return word;
}

static const char *call_of(const op_case *k)
{
    return k->call ? k->call : k->op;
}

static tp_tensor apply(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    static const op_case *last;
    static const op_signature *s;
    const op_options o = { k->args, numbers, text, name_at };
    tp_tensor y[TP_MAX_OUTPUTS];
    if (k->apply) return k->apply(T, x, k);
    if (k != last) s = op_signature_of(call_of(k));
    last = k;
    if (!s) return tp_raise(T, TP_E_VALUE, "no function is called tp_%s", call_of(k));
    op_call(T, s, inputs(k), x, o, y);
    return y[0];
}

int op_case_int(const op_case *k, const char *name)
{
    double x = 0.0;
    return numbers(k->args, name, 1, &x) > 0 ? (int)x : 0;
}

void op_case_print(const op_case *k)
{
    printf(
        "{\"op\": \"%s\", \"shape\": \"%s\", \"call\": \"%s\", \"args\": \"%s\", \"update\": %s, "
        "\"inputs\": [",
        k->op, k->shape, call_of(k), k->args ? k->args : "", k->update ? "true" : "false");
    for (int i = 0; i < inputs(k); i++) {
        const op_input *in = &k->in[i];
        if (i > 0) printf(", ");
        if (in->none) {
            printf("null");
            continue;
        }
        printf("{\"shape\": [");
        for (int a = 0; a < in->shape.ndim; a++)
            printf("%s%lld", a > 0 ? ", " : "", (long long)in->shape.dim[a]);
        printf("], \"below\": %lld, \"unit\": %s, \"fixed\": %s}", (long long)in->below,
               in->unit ? "true" : "false", in->fixed ? "true" : "false");
    }
    puts("]}");
}

/* ---- an activation on a carried tensor; the scalar makes it need a gradient ---- */

static tp_code held_shape(tp_infer *q)
{
    q->y[0] = q->x[0];
    q->view_at = 0;
    return TP_OK;
}

/* Nobody reads the scalar's gradient. */
static tp_code held_backward(const tp_call *c)
{
    (void)c;
    return TP_OK;
}

static const tp_op held = { .name = "held",
                            .nx = 2,
                            .ny = 1,
                            .shape = held_shape,
                            .backward = { [TP_CPU] = held_backward, [TP_CUDA] = held_backward } };

/* ---- inputs ---- */

static bool wants_grad(const op_input *in)
{
    return !in->none && in->below == 0 && !in->fixed;
}

/* A parameter, like a model's f32 tensors beside bf16. */
static bool is_param(const op_input *in)
{
    return wants_grad(in) && in->wide;
}

/* Pseudo-random int64_t or floats, to be freed. */
static void *random_numbers(const op_input *in, uint32_t *seed)
{
    const float step = in->unit ? 0x1p-24f : 0x1p-23f, shift = in->unit ? 0.0f : 1.0f;
    int64_t n = 1;
    for (int i = 0; i < in->shape.ndim; i++) n *= in->shape.dim[i];
    void *host = malloc((size_t)n * (in->below > 0 ? sizeof(int64_t) : sizeof(float)));
    if (!host) exit(1);
    for (int64_t j = 0; j < n; j++) {
        *seed = *seed * 1664525u + 1013904223u;
        if (in->below > 0)
            ((int64_t *)host)[j] = (int64_t)(*seed >> 8) % in->below;
        else
            ((float *)host)[j] = (float)(*seed >> 8) * step - shift;
    }
    return host;
}

void case_inputs_place(tp_tape *T, const op_case *k, case_inputs *in)
{
    const tp_init uniform = { TP_INIT_UNIFORM, 1.0, 0.0 };
    uint32_t seed = 1;
    *in = (case_inputs){ .P = tp_params_new(tp_device_of(T), NULL) };
    if (k->update) {
        in->at[0] = tp_param(in->P, "x", k->in[0].shape, uniform, 0);
        in->O = tp_optim_new(in->P, k->op, NULL);
        return;
    }
    in->scalar = tp_param(in->P, "scalar", TP_SHAPE(1), uniform, 0);
    for (int i = 0; i < inputs(k); i++) {
        const op_input *from = &k->in[i];
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        if (from->none) continue;
        if (is_param(from)) {
            in->at[i] = tp_param(in->P, name, from->shape, uniform, 0);
            continue;
        }
        void *host = random_numbers(from, &seed);
        tp_carry(T, &in->at[i], tp_from(T, from->below > 0 ? TP_I64 : TP_F32, from->shape, host));
        free(host);
    }
}

void case_inputs_release(tp_tape *T, const op_case *k, case_inputs *in)
{
    tp_reset(T);
    for (int i = 0; !k->update && i < inputs(k); i++)
        if (!k->in[i].none && !is_param(&k->in[i])) tp_carry(T, &in->at[i], TP_NONE);
    tp_optim_free(in->O);
    tp_params_free(in->P);
}

/* Begins a repetition: empties the tape and writes the operands, floats in dt where the case allows
 * it, to x[OP_MAX_IN]. Their gradients are those of activations, which nothing keeps; inputs that
 * are always f32 and have gradients are parameters. The operand of an update gets a gradient of
 * ones. */
static void begin(tp_tape *T, const op_case *k, case_inputs *in, tp_dtype dt, tp_tensor *x)
{
    tp_reset(T);
    tp_grad_clear(in->P);
    tp_device_reset_peak(tp_device_of(T));
    for (int i = 0; i < OP_MAX_IN; i++) {
        const op_input *from = &k->in[i];
        x[i] = in->at[i];
        if (in->O || from->none || from->shape.ndim == 0 || is_param(from)) continue;
        if (wants_grad(from)) x[i] = tp_apply(T, &held, NULL, in->at[i], in->scalar);
        if (from->below == 0 && dt != TP_F32 && !from->wide) x[i] = tp_cast(T, x[i], dt);
    }
    if (in->O) tp_backward(T, tp_sum(T, in->at[0], TP_ALL));
}

/* ---- an op that ends the graph; its backward records when that of the timed op begins ---- */

static double backward_began;

static tp_code end_shape(tp_infer *q)
{
    q->y[0] = (tp_view){ .dtype = TP_F32 };
    return TP_OK;
}

static tp_code end_forward(const tp_call *c)
{
    *(float *)c->y[0].data = 0.0f;
    return TP_OK;
}

static tp_code end_backward(const tp_call *c)
{
    float *g = c->dx[0].data;
    for (int64_t i = 0; i < c->dx[0].numel; i++) g[i] = 1e-3f * (float)(i % 17 - 8);
    backward_began = now();
    return TP_OK;
}

static const tp_op end_op = { .name = "end",
                              .nx = 1,
                              .ny = 1,
                              .shape = end_shape,
                              .forward = { [TP_CPU] = end_forward },
                              .backward = { [TP_CPU] = end_backward } };

/* ---- steps ---- */

static void update(tp_tape *T, case_inputs *in)
{
    if (!tp_step(in->O, 1e-3)) tp_raise(T, TP_E_STATE, "%s", tp_optim_why(in->O));
}

void cpu_step(tp_tape *T, const op_case *k, case_inputs *in, double *forward, double *backward)
{
    tp_tensor x[OP_MAX_IN];
    begin(T, k, in, TP_F32, x);
    const double t = now();
    if (in->O) {
        update(T, in);
        *forward = now() - t;
        return;
    }
    const tp_tensor y = apply(T, x, k);
    *forward = now() - t;
    if (k->forward_only) return;
    tp_backward(T, tp_apply(T, &end_op, NULL, y));
    *backward = now() - backward_began;
}

enum { LINES = 64 }; /* of a profile */

head_start head_start_new(tp_device *D, int64_t n)
{
    const tp_init zero = { TP_INIT_ZERO, 0.0, 0.0 };
    head_start h = { .P = tp_params_new(D, NULL) };
    h.x = tp_param(h.P, "x", TP_SHAPE(n), zero, TP_FROZEN);
    h.bytes = tp_device_stats(D).live_bytes;
    return h;
}

void head_start_free(head_start *h)
{
    tp_params_free(h->P);
}

/* Resets the profile and queues the head start. No case uses its op, the maximum. */
static void start_ahead(tp_tape *T, const head_start *h)
{
    tp_device_reset_profile(tp_device_of(T));
    tp_max(T, h->x, TP_ALL);
}

static bool is_head_start(const char *op)
{
    return strcmp(op, "max") == 0;
}

void gpu_step(tp_tape *T, const op_case *k, case_inputs *in, const head_start *h, tp_dtype dt,
              double *forward, double *backward)
{
    tp_op_time f[LINES], b[LINES];
    tp_device *D = tp_device_of(T);
    tp_tensor x[OP_MAX_IN], y = TP_NONE;
    int nb = 0;
    *forward = *backward = 0.0;
    begin(T, k, in, dt, x);
    start_ahead(T, h);
    if (in->O)
        update(T, in);
    else
        y = apply(T, x, k);
    const int nf = tp_device_profile(D, f, LINES);
    if (!in->O) {
        const tp_tensor loss = tp_numel(y) == 1 ? y : tp_sum(T, tp_square(T, y), TP_ALL);
        start_ahead(T, h);
        tp_backward(T, loss);
        nb = tp_device_profile(D, b, LINES);
    }
    for (int i = 0; i < nf; i++) {
        if (is_head_start(f[i].op)) continue;
        *forward += f[i].seconds;
        for (int j = 0; j < nb; j++)
            if (strcmp(f[i].op, b[j].op) == 0) *backward += b[j].seconds;
    }
}
