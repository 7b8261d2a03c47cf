/* test_blend.c - one parameter set moves towards another: values, buffers, versions, refusals. */
#include <criterion/criterion.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"

typedef struct net {
    tp_tensor weight, bias, table, count;
} net;

static tp_params *set(tp_device *D, net *m, uint64_t seed, int64_t width)
{
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = seed });
    m->table = tp_param(P, "table", TP_SHAPE(5, 3), (tp_init){ TP_INIT_NORMAL, .a = 1 }, TP_TABLE);
    m->weight = tp_param(P, "weight", TP_SHAPE(width, 70), (tp_init){ TP_INIT_NORMAL, .a = 1 }, 0);
    m->bias = tp_param(P, "bias", TP_SHAPE(width), (tp_init){ TP_INIT_NORMAL, .a = 1 }, TP_FROZEN);
    m->count = tp_buffer(P, "count", TP_I32, TP_SHAPE(2), ((int32_t[]){ (int32_t)seed, 7 }));
    tp_tie(P, "again", m->weight);
    return P;
}

static void values(tp_params *P, tp_tensor x, float *to, size_t n)
{
    cr_assert(tp_param_get(P, x, TP_F32, to, n * sizeof *to), "%s", tp_params_why(P));
}

Test(blend, moves_values_and_copies_buffers)
{
    static const double parts[] = { 0, 0.005, 0.5, 1 };
    tp_device *D = device_open(NULL);
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        net a, b;
        tp_params *to = set(D, &a, 1, 6), *from = set(D, &b, 2, 6);
        float was[420], other[420], is[420], table[15], want[15];
        int32_t count[2];
        values(to, a.weight, was, 420);
        values(from, b.weight, other, 420);
        values(to, a.table, table, 15);
        values(from, b.table, want, 15);
        cr_assert(tp_params_blend(to, from, parts[k]), "%s", tp_params_why(to));
        values(to, a.weight, is, 420);
        for (int i = 0; i < 420; i++) {
            const double mean = (1 - parts[k]) * (double)was[i] + parts[k] * (double)other[i];
            cr_expect_float_eq((double)is[i], mean, 1e-6, "part %g", parts[k]);
        }
        if (parts[k] == 1) cr_expect_arr_eq(is, other, sizeof is, "to the bit");
        values(to, a.table, is, 15);
        for (int i = 0; i < 15; i++)
            cr_expect_float_eq((double)is[i],
                               (1 - parts[k]) * (double)table[i] + parts[k] * (double)want[i],
                               1e-6);
        cr_expect(tp_param_get(to, a.count, TP_I32, count, sizeof count) && count[0] == 2);
        values(from, b.weight, is, 420);
        cr_expect_arr_eq(is, other, sizeof is, "the other is unchanged");
        tp_params_free(to);
        tp_params_free(from);
    }
    tp_device_close(D);
}

/* A backward over a forward pass that read the old values would be wrong. */
Test(blend, earlier_forward_passes_have_no_backward)
{
    net a, b;
    tp_device *D = device_open(NULL);
    tp_params *to = set(D, &a, 1, 6), *from = set(D, &b, 2, 6);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor loss = tp_sum(T, tp_mul(T, a.weight, a.weight), TP_ALL);
    cr_assert(tp_params_blend(to, from, 0.5));
    tp_backward(T, loss);
    cr_expect_eq(tp_code_of(T), TP_E_STATE, "%s", tp_why(T));
    tp_tape_free(T);
    tp_params_free(to);
    tp_params_free(from);
    tp_device_close(D);
}

static void refused(tp_params *to, tp_params *from, double part, const char *want)
{
    cr_expect_not(tp_params_blend(to, from, part), "%s", want);
    cr_expect_str_eq(tp_params_why(to), want);
    cr_expect(tp_params_ok(to), "and it stays usable");
}

Test(blend, refusals)
{
    net a, b;
    tp_device *D = device_open(NULL), *E = device_open(NULL);
    tp_params *to = set(D, &a, 1, 6), *wide = set(D, &b, 2, 7), *there = set(E, &b, 2, 6);
    tp_params *few = tp_params_new(D, NULL);
    tp_param(few, "table", TP_SHAPE(5, 3), (tp_init){ TP_INIT_NORMAL, .a = 1 }, TP_TABLE);
    refused(to, NULL, 1, "tp_params_blend: NULL was given in place of a parameter set");
    refused(to, wide, -0.5, "tp_params_blend: the part is -0.5, not from 0 to 1");
    refused(
        to, wide, 1,
        "tp_params_blend: parameter 1 is 'weight' of one set and 'weight' of the other, or they "
        "differ in shape or dtype; declare both sets by the same function");
    refused(to, there, 1, "tp_params_blend: the sets are on different devices");
    cr_expect_not(tp_params_blend(to, few, 1));
    cr_expect_not(tp_params_blend(NULL, few, 1));
    tp_params_free(to);
    tp_params_free(wide);
    tp_params_free(there);
    tp_params_free(few);
    tp_device_close(D);
    tp_device_close(E);
}
