/* common.c - functions of both language models: initialisation, position tables, memories. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

tp_init tp__lm_init_rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    (void)dflt;
    (void)env;
    if (s.ndim >= 2) return (tp_init){ TP_INIT_NORMAL, 0.02, 0.0 };
    if (tp_ends_in(name, "weight")) return (tp_init){ TP_INIT_NORMAL, 0.02, 1.0 };
    return (tp_init){ .kind = TP_INIT_ZERO };
}

tp_tensor tp__lm_frequencies(tp_params *P, const char *name, int64_t dim)
{
    const int64_t n = dim / 2;
    double *w = malloc((size_t)(n ? n : 1) * sizeof *w);

    if (!w) {
        tp_params_raise(P, TP_E_MEMORY, "%s: out of host memory", name);
        return TP_NONE;
    }
    tp_frequencies(n, w);
    const tp_tensor buffer = tp_buffer(P, name, TP_F64, TP_SHAPE(n), w);
    free(w);
    return buffer;
}

/* Converts x to f64 or f32. */
static tp_tensor from_double(tp_tape *T, tp_dtype dt, tp_shape s, const double *x)
{
    const int64_t n = s.dim[0] * s.dim[1];
    if (dt == TP_F64) return tp_from(T, dt, s, x);

    float *f = malloc((size_t)(n ? n : 1) * sizeof *f);
    if (!f) return tp_raise(T, TP_E_MEMORY, "position table: out of host memory");
    for (int64_t i = 0; i < n; i++) f[i] = (float)x[i];
    const tp_tensor y = tp_from(T, dt, s, f);
    free(f);
    return y;
}

tp_tensor tp__lm_positions(tp_tape *T, tp_tensor *slot, int64_t rows, tp_tensor inv_freq,
                           int64_t clamp)
{
    const tp_dtype dt = tp_compute_dtype(T) == TP_F64 ? TP_F64 : TP_F32;
    const int64_t n = tp_numel(inv_freq);
    if (!tp_ok(T) || (tp_given(*slot) && tp_dim(*slot, 0) == rows)) return *slot;
    if (tp_dry(T)) { /* costs are asked for at lengths whose table the host could not hold */
        tp_carry(T, slot, tp_full(T, dt, TP_SHAPE(rows, 2 * n), 0.0));
        return *slot;
    }

    double *w = malloc((size_t)(n + rows * 2 * n) * sizeof *w); /* frequencies, then the table */
    if (!w) return tp_raise(T, TP_E_MEMORY, "position table: out of host memory");
    if (tp_read(T, inv_freq, w, (size_t)n * sizeof *w)) {
        tp_sinusoid(rows, n, w, clamp, w + n);
        tp_carry(T, slot, from_double(T, dt, TP_SHAPE(rows, 2 * n), w + n));
    }
    free(w);
    return *slot;
}

bool tp__lm_check_input(tp_tape *T, const tp_params *P, tp_tensor tokens, tp_tensor slot)
{
    const long long B = (long long)tp_dim(tokens, 0);

    if (!tp_params_ok(P))
        tp_raise(T, TP_E_STATE, "%s", tp_params_why(P));
    else if (tp_ndim(tokens) != 2)
        tp_raise(T, TP_E_SHAPE, "tokens must be [batch,length]; they have %d axes",
                 tp_ndim(tokens));
    else if (tp_given(slot) && tp_dim(slot, 0) != B)
        tp_raise(T, TP_E_STATE,
                 "the memory holds %lld streams, the tokens are %lld: clear the state to start "
                 "others, or keep one state for each batch size",
                 (long long)tp_dim(slot, 0), B);
    return tp_ok(T);
}

void tp__lm_remember(tp_tape *T, tp_tensor *slot, tp_tensor old, tp_tensor h, int64_t mem_len)
{
    const int64_t L = tp_dim(old, 1), M = tp_dim(h, 1);
    const int64_t fresh = M < mem_len ? M : mem_len;
    const int64_t kept = L < mem_len - fresh ? L : mem_len - fresh;
    tp_tensor x = tp_detach(T, h);

    if (fresh < M) x = tp_slice(T, x, 1, M - fresh, fresh);
    if (kept > 0) x = tp_concat(T, 1, tp_slice(T, old, 1, L - kept, kept), x);
    tp_carry(T, slot, x);
}

/* ---- memories in checkpoints ---- */

bool tp__lm_slots_write(tp_tape *T, const char *name, int n, const tp_tensor *slot, tp_writer *W)
{
    for (int i = 0; i < n && tp_ok(T) && tp_given(slot[i]); i++) {
        char full[64];
        const tp_dtype dt = tp_dtype_of(slot[i]);
        const size_t bytes = (size_t)tp_numel(slot[i]) * tp_dtype_size(dt);
        void *host = malloc(bytes ? bytes : 1);
        snprintf(full, sizeof full, "state.%s.%d", name, i);
        if (!host)
            tp_raise(T, TP_E_MEMORY, "%s: out of host memory", full);
        else if (tp_read(T, slot[i], host, bytes))
            tp_writer_add(W, full, dt, tp_shape_of(slot[i]), host, true);
        free(host);
    }
    if (tp_ok(T) && !tp_writer_ok(W)) tp_raise(T, TP_E_IO, "%s", tp_writer_why(W));
    return tp_ok(T);
}

void tp__lm_slots_clear(tp_tape *T, int n, tp_tensor *slot)
{
    for (int i = 0; i < n; i++)
        if (tp_given(slot[i])) tp_carry(T, &slot[i], TP_NONE);
}

/* Reads a tensor of a file into a slot. */
static void read_slot(tp_tape *T, const tp_file_tensor *t, tp_tensor *slot, tp_file *F)
{
    const tp_dtype dt = tp_compute_dtype(T);
    void *host = malloc((size_t)t->numel * tp_dtype_size(dt) + 1);

    if (!host)
        tp_raise(T, TP_E_MEMORY, "%s: out of host memory", t->name);
    else if (tp_file_read(F, t, dt, host))
        tp_carry(T, slot, tp_from(T, dt, t->shape, host));
    else
        tp_raise(T, TP_E_IO, "%s", tp_file_why(F));
    free(host);
}

bool tp__lm_slots_read(tp_tape *T, const char *name, int n, tp_tensor *slot, int64_t min_rows,
                       int64_t max_rows, int64_t dim, tp_file *F)
{
    const tp_file_tensor *first = NULL;

    for (int i = 0; i < n; i++) {
        char full[64];
        snprintf(full, sizeof full, "state.%s.%d", name, i);
        const tp_file_tensor *t = tp_file_find(F, full);
        if (i == 0) first = t;
        if (!first) {
            tp_carry(T, &slot[i], TP_NONE);
            continue;
        }
        if (!t || t->shape.ndim != 3 || t->shape.dim[0] != first->shape.dim[0] ||
            t->shape.dim[1] != first->shape.dim[1] || t->shape.dim[1] < min_rows ||
            t->shape.dim[1] > max_rows || t->shape.dim[2] != dim) {
            tp_raise(T, TP_E_IO,
                     "%s: %s is %s: every layer must have [batch,rows,%lld] with %lld to %lld rows",
                     tp_file_path(F), full, t ? "of another shape" : "missing", (long long)dim,
                     (long long)min_rows, (long long)max_rows);
            return false;
        }
        read_slot(T, t, &slot[i], F);
    }
    return tp_ok(T);
}
