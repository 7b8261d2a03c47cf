/* gradcheck.c - checks the gradients of an op against central differences, in f64.
 *
 * The outputs y are reduced to L = sum w y with fixed random weights w, so that one backward gives
 * every dL/dx and checks all outputs at once. Each dL/dx is compared with
 *
 *     (L(x + h d) - L(x - h d)) / 2h      h = 1e-6 max(1, |x|)
 *
 * for each unit vector d if the input has at most 64 elements, else for three random d of +-1.
 * Differences are taken per output: unchanged outputs add no rounding error.
 *
 * Before that, backward runs on records that hold all inputs and outputs. Each run overwrites one
 * that the op does not save: if a gradient changes, the op reads it and would normally find a NULL
 * pointer. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/device.h>
#include <tapegrad/op.h>

#include "autograd/gradcase.h"
#include "autograd/tape.h"
#include "tensor/rng.h"
#include "tensor/shape.h"

#define SEED       7
#define FULL       64   /* largest input probed by element */
#define DIRECTIONS 3    /* above that                                          */
#define STEP       1e-6 /* h                                                   */
#define RELATIVE   1e-6 /* tolerance relative to the input's largest gradient  */
#define ROUNDING   1e-9 /* plus this times the largest output: eps / h         */
#define SAME       1e-9 /* tolerance between gradients computed in two ways    */

/* ---- the loss ---- */

/* Weight of element e of the concatenated outputs: +-[0.5, 1.5). */
static double weight(int64_t e)
{
    const uint32_t w = tp__word(SEED, 1, (uint64_t)e);
    return (w & 1 ? 1.0 : -1.0) * (0.5 + (double)tp__uniform(w));
}

/* Attribute: outputs per application; the inputs are the outputs of all. */
static tp_code probe_shape(tp_infer *q)
{
    q->y[0] = (tp_view){ .dtype = TP_F64 };
    return TP_OK;
}

static tp_code probe_forward(const tp_call *c)
{
    const int outputs = *(const int *)c->attr;
    double sum = 0.0;
    int64_t at = 0;
    for (int i = 0; i < c->nx; i++) {
        if (i % outputs == 0) at = 0;
        for (int64_t e = 0; e < c->x[i].numel; e++) sum += weight(at++) * tp_ld(&c->x[i], e);
    }
    tp_st(&c->y[0], 0, sum);
    return TP_OK;
}

static tp_code probe_backward(const tp_call *c)
{
    const int outputs = *(const int *)c->attr;
    int64_t at = 0;
    for (int i = 0; i < c->nx; i++) {
        if (i % outputs == 0) at = 0;
        for (int64_t e = 0; e < c->x[i].numel; e++, at++)
            if (c->dx[i].data) tp_st(&c->dx[i], e, tp_ld(&c->dy[0], 0) * weight(at));
    }
    return TP_OK;
}

static const tp_op probe = {
    .name = "gradcheck",
    .nx = -1,
    .ny = 1,
    .attr_size = sizeof(int),
    .shape = probe_shape,
    .forward = { [TP_CPU] = probe_forward },
    .backward = { [TP_CPU] = probe_backward },
};

/* ---- one case ---- */

typedef struct check {
    tp_tape *T;
    const tp_op *op;
    const tp_gradcase *k;
    bool train;
    int nx, ny;
    tp_view x[TP_CASE_INPUTS];     /* in host memory; ndim -1: absent               */
    double *grad[TP_CASE_INPUTS];  /* of the inputs in `wanted`                     */
    double *other[TP_CASE_INPUTS]; /* the same, computed in another way             */
    double *saved;                 /* original values of the input being perturbed  */
    double *above, *below;         /* the outputs at x + h d and x - h d            */
    int64_t outputs;               /* their number                                  */
    uint64_t wanted;
    uint32_t spoilt; /* TP_SAVE_X(i) or TP_SAVE_Y(i): overwritten before backward; 0: none */
    void *blocks[3 * TP_CASE_INPUTS + 3]; /* all memory of the case */
    int nblocks;
    char *text;
    size_t size;
} check;

static bool fail(const check *c, const char *fmt, ...) TP_PRINTF(2, 3);
static bool fail(const check *c, const char *fmt, ...)
{
    char why[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    snprintf(c->text, c->size, "%s, case '%s' (%s): %s", c->op->name, c->k->name,
             c->train ? "training" : "eval", why);
    return false;
}

static bool tape_ok(const check *c)
{
    return tp_ok(c->T) || fail(c, "%s", tp_why(c->T));
}

/* Returns zeroed memory for n + 1 elements: an empty array has an address. */
static void *array(check *c, int64_t n, size_t size)
{
    return c->blocks[c->nblocks++] = calloc((size_t)n + 1, size);
}

/* Resets the tape and creates the inputs; bit i of wants: input i wants a gradient. */
static void place(const check *c, uint64_t wants, tp_tensor *x)
{
    tp_reset(c->T);
    for (int i = 0; i < c->nx; i++) {
        const tp_view *v = &c->x[i];
        const bool wanted = wants >> i & 1u;
        x[i] = TP_NONE;
        if (!tp_absent(v))
            x[i] = (wanted ? tp_input : tp_from)(c->T, v->dtype, tp__view_shape(v), v->data);
    }
}

/* Applies the op, always with the same random numbers. Moves the floating outputs to the front of y
 * and returns their number. */
static int apply(const check *c, const tp_tensor *x, tp_tensor *y)
{
    int n = 0;
    tp_set_random_state(c->T, SEED, 0);
    tp_apply_n(c->T, c->op, c->k->attr, c->nx, x, c->ny, y);
    for (int i = 0; i < c->ny; i++)
        if (tp_is_float(tp_dtype_of(y[i]))) y[n++] = y[i];
    return n;
}

/* Writes the outputs for the current inputs to out, if given; sets c->outputs. */
static bool evaluate(check *c, double *out)
{
    tp_tensor x[TP_CASE_INPUTS], y[TP_CASE_INPUTS];
    tp_record(c->T, false);
    place(c, 0, x);
    const int n = apply(c, x, y);
    c->outputs = 0;
    for (int i = 0; i < n; i++) {
        const int64_t size = tp_numel(y[i]);
        if (out) tp_read(c->T, y[i], out + c->outputs, (size_t)size * sizeof *out);
        c->outputs += size;
    }
    tp_record(c->T, true);
    return tape_ok(c);
}

/* Overwrites memory that backward must not read; indices stay valid. */
static void spoil(tp_view *v, int64_t below)
{
    if (tp_absent(v) || !v->data) return;
    for (int64_t e = 0; e < v->numel; e++) {
        if (tp_is_float(v->dtype))
            tp_st(v, e, (double)NAN);
        else if (v->dtype == TP_U8)
            tp_st(v, e, tp_ld(v, e) == 0.0);
        else
            tp_st(v, e, below > 0 ? fmod(tp_ld(v, e) + 1.0, (double)below) : 0.0);
    }
}

/* Overwrites the input or output named by c->spoilt in the op's records. */
static void spoil_records(const check *c)
{
    for (int64_t k = 0; c->spoilt && k < c->T->nrecs; k++) {
        tp_rec *r = c->T->recs[k];
        for (int i = 0; r->op == c->op && i < r->nx; i++)
            if (c->spoilt == tp__bit(i)) spoil(&r->xv[i], c->k->below[tp__case_like(c->k, i)]);
        for (int i = 0; r->op == c->op && i < r->ny; i++)
            if (c->spoilt == tp__bit(i) << TP_MAX_INPUTS) spoil(&r->yv[i], 0);
    }
}

/* Computes the gradients of L for the inputs in wants. Applies the op `times` times to the same
 * inputs, so that later contributions are accumulated. */
static bool backward(check *c, uint64_t wants, int times, double *const *grad)
{
    tp_tensor x[TP_CASE_INPUTS], y[2 * TP_CASE_INPUTS];
    int n = 0;
    place(c, wants, x);
    for (int t = 0; t < times; t++) n = apply(c, x, y + t * n);
    const tp_tensor loss = tp_apply_n(c->T, &probe, &n, times * n, y, 1, NULL);
    if (tp_ok(c->T)) spoil_records(c);
    tp_backward(c->T, loss);
    for (int i = 0; i < c->nx; i++)
        if (wants >> i & 1u)
            tp_read(c->T, tp_grad(c->T, x[i]), grad[i], (size_t)c->x[i].numel * sizeof(double));
    return tape_ok(c);
}

static double largest(const double *v, int64_t n)
{
    double most = 0.0;
    for (int64_t e = 0; e < n; e++) most = fmax(most, fabs(v[e]));
    return most;
}

static bool all_finite(const double *v, int64_t n)
{
    int64_t e = 0;
    while (e < n && isfinite(v[e])) e++;
    return e == n;
}

/* Element e of direction d for an input of n elements. */
static double direction(int64_t n, int64_t d, int64_t e)
{
    if (n <= FULL) return d == e ? 1.0 : 0.0;
    return tp__word(SEED, (uint64_t)(2 + d), (uint64_t)e) & 1 ? 1.0 : -1.0;
}

static bool check_direction(check *c, int i, int64_t d)
{
    const int64_t n = c->x[i].numel;
    const double *g = c->grad[i];
    double *x = c->x[i].data, analytic = 0.0, numeric = 0.0, norm = 0.0;

    memcpy(c->saved, x, (size_t)n * sizeof *x);
    const double h = STEP * fmax(1.0, largest(x, n));
    for (int64_t e = 0; e < n; e++) x[e] = c->saved[e] + h * direction(n, d, e);
    bool ok = evaluate(c, c->above);
    for (int64_t e = 0; e < n; e++) x[e] = c->saved[e] - h * direction(n, d, e);
    ok = ok && evaluate(c, c->below);
    memcpy(x, c->saved, (size_t)n * sizeof *x);
    if (!ok) return false;

    for (int64_t e = 0; e < c->outputs; e++) numeric += weight(e) * (c->above[e] - c->below[e]);
    numeric /= 2.0 * h;
    for (int64_t e = 0; e < n; e++) {
        analytic += g[e] * direction(n, d, e);
        norm += g[e] * g[e];
    }
    const double scale = n <= FULL ? largest(g, n) : sqrt(norm);
    const double most = RELATIVE * scale + ROUNDING * (1.0 + largest(c->above, c->outputs));
    if (fabs(analytic - numeric) <= most) return true;
    return fail(c, "input %d, %s %lld: backward gives %.12g, differences give %.12g", i,
                n <= FULL ? "element" : "direction", (long long)d, analytic, numeric);
}

/* Is `other` equal to `times` gradients of input i? */
static bool check_same(const check *c, int i, int times, const char *when)
{
    const double scale = 1.0 + largest(c->grad[i], c->x[i].numel);
    for (int64_t e = 0; e < c->x[i].numel; e++)
        if (!(fabs(c->other[i][e] - times * c->grad[i][e]) <= SAME * scale))
            return fail(c, "input %d, element %lld: the gradient %s is %.12g instead of %.12g", i,
                        (long long)e, when, c->other[i][e], times * c->grad[i][e]);
    return true;
}

/* The bits of `saves` for all inputs and outputs. */
static uint32_t pieces(const check *c)
{
    const int ny = c->op->ny < 0 ? c->ny : c->op->ny;
    const uint32_t inputs = c->nx > 0 ? 2 * tp__bit(c->nx - 1) - 1 : 0;
    return inputs | (2 * tp__bit(ny - 1) - 1) << TP_MAX_INPUTS;
}

/* True if overwriting that input or output changes a gradient; false if the tape fails. */
static bool reads(check *c, int piece)
{
    c->spoilt = 1u << piece;
    bool same = backward(c, c->wanted, 1, c->other);
    c->spoilt = 0;
    if (!tp_ok(c->T)) return false;
    for (int i = 0; same && i < c->nx; i++) {
        if (!(c->wanted >> i & 1u)) continue;
        const double most = SAME * (1.0 + largest(c->grad[i], c->x[i].numel));
        for (int64_t e = 0; same && e < c->x[i].numel; e++)
            same = fabs(c->other[i][e] - c->grad[i][e]) <= most;
    }
    return !same;
}

/* A shared kernel may read whichever of two pieces is saved, so reading an unsaved piece is a
 * failure only if every saved one is read too. */
static bool check_saves(check *c)
{
    const uint32_t all = pieces(c), saved = all & c->op->saves;
    int missing = -1;
    c->T->saves_all = true;
    bool ok = backward(c, c->wanted, 1, c->grad);
    for (int i = 0; ok && i < c->nx; i++)
        if ((c->wanted >> i & 1u) && !all_finite(c->grad[i], c->x[i].numel))
            ok = fail(c, "the gradient of input %d is not finite", i);
    for (int p = 0; ok && missing < 0 && p < 32; p++)
        if (((all & ~saved) >> p & 1u) && reads(c, p)) missing = p;
    for (int p = 0; ok && missing >= 0 && p < 32; p++)
        if ((saved >> p & 1u) && !reads(c, p)) missing = -1;
    c->T->saves_all = false;
    ok = ok && tape_ok(c);
    if (!ok || missing < 0) return ok;
    const bool x = missing < TP_MAX_INPUTS;
    const int i = x ? missing : missing - TP_MAX_INPUTS;
    return fail(c,
                "backward reads %s %d, which the op does not save (a NULL pointer when it runs): "
                "add TP_SAVE_%c(%d) to .saves",
                x ? "input" : "output", i, x ? 'X' : 'Y', i);
}

static bool check_gradients(check *c)
{
    if (!check_saves(c)) return false;
    bool ok = backward(c, c->wanted, 1, c->grad);
    for (int i = 0; ok && i < c->nx; i++) {
        if (!(c->wanted >> i & 1u)) continue;
        const int64_t n = c->x[i].numel, probes = n <= FULL ? n : DIRECTIONS;
        if (!all_finite(c->grad[i], n)) return fail(c, "the gradient of input %d is not finite", i);
        for (int64_t d = 0; ok && d < probes; d++) ok = check_direction(c, i, d);
    }
    for (int i = 0; ok && i < c->nx; i++)
        if (c->wanted >> i & 1u)
            ok = backward(c, UINT64_C(1) << i, 1, c->other) && check_same(c, i, 1, "wanted alone");
    ok = ok && backward(c, c->wanted, 2, c->other);
    for (int i = 0; ok && i < c->nx; i++)
        if (c->wanted >> i & 1u) ok = check_same(c, i, 2, "of two applications");
    return ok;
}

/* ---- inputs ---- */

tp_view tp__case_view(const tp_gradcase *k, int i, tp_dtype real)
{
    const int like = tp__case_like(k, i);
    const tp_dtype dt = k->masks & tp__bit(like) ? TP_U8 : k->below[like] > 0 ? TP_I64 : real;
    return tp__view(dt, &k->in[like], NULL);
}

/* Keeps magnitudes away from 0, where many ops have kinks or poles. */
void tp__case_fill(const tp_gradcase *k, int i, tp_view *v)
{
    for (int64_t e = 0; e < v->numel; e++) {
        const uint32_t w = tp__word(SEED, (uint64_t)i + 100, (uint64_t)e);
        if (v->dtype == TP_U8)
            tp_st(v, e, w >> 31);
        else if (v->dtype == TP_I64)
            tp_st(v, e, (double)((uint64_t)w * (uint64_t)k->below[tp__case_like(k, i)] >> 32));
        else
            tp_st(v, e, (w & 1 ? 1.0 : -1.0) * (0.05 + (double)tp__uniform(w)));
    }
    if (k->fill) k->fill(i, v);
}

static bool make_input(check *c, int i)
{
    const tp_gradcase *k = c->k;
    if (k->in[tp__case_like(k, i)].ndim == 0) {
        c->x[i] = (tp_view){ .ndim = -1 };
        return true;
    }
    c->x[i] = tp__case_view(k, i, TP_F64);
    c->x[i].data = array(c, c->x[i].numel, sizeof(double));
    c->grad[i] = array(c, c->x[i].numel, sizeof(double));
    c->other[i] = array(c, c->x[i].numel, sizeof(double));
    if (!c->x[i].data || !c->grad[i] || !c->other[i]) return fail(c, "out of memory");
    tp__case_fill(k, i, &c->x[i]);
    if (c->x[i].dtype == TP_F64 && !(c->op->constant & tp__bit(i))) c->wanted |= UINT64_C(1) << i;
    return true;
}

static bool run_case(check *c)
{
    int64_t most = 0;
    c->nx = tp__case_inputs(c->op, c->k);
    c->ny = c->k->ny > 0 ? c->k->ny : 1;
    if (c->k->nx > TP_CASE_INPUTS || c->ny > TP_CASE_INPUTS)
        return fail(c, "a case has at most %d inputs and outputs", TP_CASE_INPUTS);
    for (int i = 0; i < c->nx; i++) {
        if (!make_input(c, i)) return false;
        if (!tp_absent(&c->x[i]) && c->x[i].numel > most) most = c->x[i].numel;
    }
    tp_train(c->T, c->train);
    if (!evaluate(c, NULL)) return false;
    c->saved = array(c, most, sizeof(double));
    c->above = array(c, c->outputs, sizeof(double));
    c->below = array(c, c->outputs, sizeof(double));
    if (!c->saved || !c->above || !c->below) return fail(c, "out of memory");
    if (!evaluate(c, c->above)) return false;
    if (!all_finite(c->above, c->outputs)) return fail(c, "a result is not finite");
    return (c->op->flags & TP_NOT_DIFFERENTIABLE) || check_gradients(c);
}

bool tp_gradcheck(const tp_op *op, tp_device *D, char *text, size_t size)
{
    if (!text) size = 0;
    if (!op || !op->name) {
        snprintf(text, size, "tp_gradcheck: %s",
                 op ? "the op has no name" : "NULL was given in place of an op");
        return false;
    }
    tp_device *own = D ? NULL : tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D ? D : own, &(tp_tape_opts){ .compute = TP_F64 });
    bool ok = op->cases || (op->flags & TP_NOT_DIFFERENTIABLE);
    snprintf(text, size, "%s%s", op->name,
             ok ? "" : ": differentiable, but without gradient cases");
    for (const tp_gradcase *k = op->cases; ok && k && k->name; k++)
        for (int train = 0; ok && train < 2; train++) {
            check c = { .T = T, .op = op, .k = k, .train = train, .text = text, .size = size };
            ok = run_case(&c);
            while (c.nblocks) free(c.blocks[--c.nblocks]);
        }
    tp_tape_free(T);
    tp_device_close(own);
    return ok;
}
