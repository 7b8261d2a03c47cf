/* op_cases.c - the tables of cases of bench_ops, one for each family (op_cases_FAMILY.c). */
#include "op_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/op.h>

#include "tools/op_calls/op_calls.h"

int64_t op_numel(tp_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++) n *= s.dim[i];
    return n;
}

int op_inputs(const op_case *k)
{
    int n = 0;
    while (n < OP_MAX_IN && k->in[n].shape.ndim > 0) n++;
    return n;
}

void *op_numbers(const op_case *k, int i, uint32_t *seed)
{
    const int64_t n = op_numel(k->in[i].shape), below = k->in[i].below;
    void *host = malloc((size_t)n * (below > 0 ? sizeof(int64_t) : sizeof(float)));
    if (!host) exit(1);
    for (int64_t j = 0; j < n; j++) {
        *seed = *seed * 1664525u + 1013904223u;
        if (below > 0)
            ((int64_t *)host)[j] = (int64_t)(*seed >> 8) % below;
        else
            ((float *)host)[j] = (float)(*seed >> 8) * (k->unit >> i & 1u ? 0x1p-24f : 0x1p-23f) -
                                 (k->unit >> i & 1u ? 0.0f : 1.0f);
    }
    return host;
}

/* ---- calls by name ---- */

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

tp_tensor op_named(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    static const op_case *last;
    static const op_signature *s;
    const op_options o = { k->args, numbers, text };
    tp_tensor in[2 * OP_MAX_IN], y[TP_MAX_OUTPUTS];
    int n = 0;
    if (k != last) s = op_signature_of(k->call ? k->call : k->op);
    last = k;
    if (!s)
        return tp_raise(T, TP_E_VALUE, "no function is called tp_%s", k->call ? k->call : k->op);
    for (int i = 0; i < op_inputs(k); in[n++] = x[i++])
        while (k->absent >> n & 1u) in[n++] = TP_NONE;
    op_call(T, s, n, in, o, y);
    return y[0];
}

/* A product and a copy: the rates of the machine. */
static const op_case machine[] = {
    { "matmul", "1024x1024x1024", op_named, .mflop = 2e-6 * 1024.0 * 1024.0 * 1024.0,
      .in = { { { 2, { 1024, 1024 } }, 0 }, { { 2, { 1024, 1024 } }, 0 } } },
    { "copy", "y = 2x, 64 MB", op_named, .call = "scale", .args = "k=2", .mbyte = 8e-6 * 16777216.0,
      .in = { { { 1, { 16777216 } }, 0 } } },
    { 0 },
};

const op_case *const op_tables_cpu[] = {
    machine,
    op_cases_product,
    op_cases_norm,
    op_cases_loss,
    op_cases_attention,
    op_cases_image,
    op_cases_recurrent,
    op_cases_elementwise,
    op_cases_reduce,
    op_cases_shape,
    op_cases_create,
    op_cases_update,
    NULL,
};
