/* ops_layers.c - instructions of fuzz_ops with weights: products and normalisation. */
#define TP_NO_SITE /* errors name the instruction (run in fuzz_ops.c), not a line here */
#include <string.h>

#include "ops_fuzzer.h"

/* ---- products ---- */

static tp_tensor product(ops_env *e, bool ta, bool tb, bool plain)
{
    const ops_pick a = ops_any(e);
    const int64_t k = ops_dim(a.s, ta ? -2 : -1), n = ops_size(e);
    tp_shape s = ops_flag(e) ? a.s : TP_SHAPE(1, 1);
    s = ops_with(ops_with(s, -2, tb ? n : k), -1, tb ? k : n);
    const tp_tensor b = ops_input(e, s);
    return plain ? tp_matmul(ops_tape(e), a.t, b) : tp_matmul_t(ops_tape(e), a.t, ta, b, tb);
}

static tp_tensor matmul(ops_env *e, const ops_row *r)
{
    (void)r;
    return product(e, false, false, true);
}

static tp_tensor matmul_t(ops_env *e, const ops_row *r)
{
    (void)r;
    const uint8_t b = ops_byte(e);
    return product(e, b & 1, b & 2, false);
}

/* Mostly valid strings: a few letters, commas between as many parts as tensors, one arrow. */
static tp_tensor einsum(ops_env *e, const ops_row *r)
{
    enum { OPERANDS = 4, LENGTH = 64 };
    static const char *const other[] = { "...", " ", "Z", "->", "-", ".", ",", "1" };
    char spec[LENGTH + 8] = "";
    tp_tensor x[OPERANDS] = { TP_NONE, TP_NONE, TP_NONE, TP_NONE };
    (void)r;
    const int n = ops_byte(e) % (OPERANDS + 1);
    const int64_t size = ops_size(e);
    for (int i = 0; i <= n; i++) { /* the last part is the output */
        tp_shape s = { 0, { 0 } };
        const int letters = ops_byte(e) % 6;
        if (i == n && ops_flag(e)) break;
        if (i > 0) strcat(spec, i < n ? "," : "->");
        for (int k = 0; k < letters; k++) {
            const uint8_t b = ops_byte(e);
            const char c[2] = { (char)('a' + b % 8), '\0' };
            strcat(spec, b < 240 ? c : other[b % 8]);
            s.dim[s.ndim++] = ops_near(e, b % 8 == 7 ? 1 : size);
        }
        if (i < n) x[i] = ops_input(e, s);
    }
    return tp_einsum_n(ops_tape(e), spec, n, x);
}

static tp_tensor linear(ops_env *e, const ops_row *r)
{
    (void)r;
    const ops_pick x = ops_any(e);
    const int64_t n = ops_size(e);
    const tp_tensor w = ops_input(e, TP_SHAPE(n, ops_dim(x.s, -1)));
    const tp_tensor b = ops_maybe(e, TP_SHAPE(n));
    const uint8_t act = ops_byte(e);
    return tp_linear(ops_tape(e), x.t, w, b, (tp_act)(act < 250 ? act % 5 : act));
}

/* ---- normalisation ---- */

/* x, with a weight and a bias for its last axis. */
typedef struct normed {
    ops_pick x;
    tp_shape c;
    tp_tensor w, b;
} normed;

static normed draw_normed(ops_env *e)
{
    normed n = { .x = ops_any(e) };
    n.c = TP_SHAPE(ops_dim(n.x.s, -1));
    n.w = ops_maybe(e, n.c);
    n.b = ops_maybe(e, n.c);
    return n;
}

static tp_tensor layernorm(ops_env *e, const ops_row *r)
{
    (void)r;
    const normed n = draw_normed(e);
    return tp_layernorm(ops_tape(e), n.x.t, n.w, n.b, ops_number(e));
}

static tp_tensor instancenorm(ops_env *e, const ops_row *r)
{
    (void)r;
    const normed n = draw_normed(e);
    return tp_instancenorm(ops_tape(e), n.x.t, n.w, n.b, ops_number(e));
}

static tp_tensor groupnorm(ops_env *e, const ops_row *r)
{
    (void)r;
    const normed n = draw_normed(e);
    const int64_t groups = ops_near(e, n.c.dim[0] % 2 == 0 ? 2 : 1);
    return tp_groupnorm(ops_tape(e), n.x.t, groups, n.w, n.b, ops_number(e));
}

static tp_tensor rmsnorm(ops_env *e, const ops_row *r)
{
    (void)r;
    const normed n = draw_normed(e);
    return tp_rmsnorm(ops_tape(e), n.x.t, n.w, ops_number(e));
}

/* Parameters 3 and 4 are buffers of four numbers, and parameter 5 is a counter. */
static tp_tensor batchnorm(ops_env *e, const ops_row *r)
{
    (void)r;
    const normed n = draw_normed(e);
    const tp_tensor *p = e->w[e->world].param;
    const bool buffers = ops_near(e, 1) == 1;
    const tp_tensor mean = buffers ? p[3] : ops_input(e, n.c);
    const tp_tensor var = buffers ? p[4] : ops_input(e, n.c);
    const tp_tensor batches = ops_flag(e) ? p[5] : ops_maybe(e, TP_SHAPE(1));
    const double momentum = ops_number(e);
    return tp_batchnorm(ops_tape(e), n.x.t, n.w, n.b, mean, var, batches, momentum, ops_number(e));
}

static tp_tensor dropout_add(ops_env *e, const ops_row *r)
{
    (void)r;
    const normed n = draw_normed(e);
    const tp_tensor residual = ops_input(e, n.x.s);
    return tp_dropout_add(ops_tape(e), n.x.t, n.b, residual, ops_number(e));
}

const ops_row ops_layers[] = {
    { .name = "matmul", .run = matmul },
    { .name = "matmul_t", .run = matmul_t },
    { .name = "einsum_n", .run = einsum },
    { .name = "linear", .run = linear },
    { .name = "layernorm", .run = layernorm },
    { .name = "instancenorm", .run = instancenorm },
    { .name = "groupnorm", .run = groupnorm },
    { .name = "rmsnorm", .run = rmsnorm },
    { .name = "batchnorm", .run = batchnorm },
    { .name = "dropout_add", .run = dropout_add },
    { .name = NULL },
};
