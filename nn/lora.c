/* lora.c - saves, loads and merges low-rank adaptations.
 *
 * Sums of W and B A are computed on the host in double and rounded once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/lora.h>

#include "autograd/nodes.h"
#include "autograd/params.h"
#include "tensor/file/inner.h"
#include "tensor/file/slots.h"

#define PREFIX "base_model.model."
#define RANK   "lora.rank"
#define ALPHA  "lora.alpha"

bool tp_lora_is_name(const char *name)
{
    return tp_ends_in(name, "." TP_LORA_A) || tp_ends_in(name, "." TP_LORA_B);
}

bool tp__has_lora(const tp_file *F)
{
    for (int i = 0; i < tp_file_count(F); i++)
        if (tp_lora_is_name(tp_file_at(F, i)->name)) return true;
    return false;
}

/* False, with a refusal, unless P has adaptations and is complete. */
static bool begin(tp_params *P, const char *what)
{
    if (!tp__params_begin(P)) return false;
    if (!P->lora)
        return tp_params_refuse(P, TP_E_STATE,
                                "%s: these parameters have no adaptations; call tp_lora before "
                                "the modules are declared",
                                what);
    return tp__params_complete(P);
}

/* ---- files ---- */

/* The adaptations and what is trained beside them. */
static tp_slots slots_of(tp_params *P)
{
    tp_slots S = { 0 };
    for (int i = 0; i < P->n; i++) {
        const tp_entry *e = &P->entries[i];
        if (e->alias_of || e->node->buffer || (!tp_lora_is_name(e->name) && e->node->frozen))
            continue;
        tp__slots_add(&S, P->dev, "", e->name, &e->node->view, -1);
    }
    return S;
}

bool tp_lora_write(tp_params *P, tp_writer *W)
{
    P = tp__params_some(P);
    if (!begin(P, "tp_lora_write")) {
        tp__writer_fail(W, P->err.code != TP_OK ? &P->err : &P->refusal);
        return false;
    }
    tp_slots S = slots_of(P);
    tp_writer_meta_int(W, RANK, P->lora->o.rank);
    tp_writer_meta_num(W, ALPHA, P->lora->o.alpha);
    tp__slots_write(&S, W, PREFIX);
    tp__slots_free(&S);
    return tp_writer_ok(W);
}

bool tp_lora_save(tp_params *P, const char *path)
{
    P = tp__params_some(P);
    if (!begin(P, "tp_lora_save")) return false;
    tp_writer *W = tp_writer_new(path);
    tp__writer_no_nan(W);
    tp_writer_meta(W, "format", "pt");
    const bool ok = tp_lora_write(P, W) && tp_writer_commit(W);
    if (!ok) tp__err(&P->refusal, tp_writer_code(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    return ok;
}

/* The prefix of a file whose tensors have the names of P, found at any adaptation. */
static void find_prefix(const tp_params *P, const tp_file *F, char *prefix, size_t size)
{
    snprintf(prefix, size, "%s", PREFIX);
    for (int i = 0; i < tp_file_count(F); i++) {
        const char *name = tp_file_at(F, i)->name;
        if (!tp_lora_is_name(name)) continue;
        for (const char *at = name; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL) {
            char own[1024];
            snprintf(own, sizeof own, "%s", at);
            if (!tp_given(tp_find(P, own))) { /* without adaptations: the weight's name */
                const size_t n =
                    strlen(at) > strlen(TP_LORA_A) ? strlen(at) - strlen(TP_LORA_A) : 0;
                snprintf(own, sizeof own, "%.*sweight", (int)n, at);
            }
            if (!tp_given(tp_find(P, own))) continue;
            snprintf(prefix, size, "%.*s", (int)(at - name), name);
            return;
        }
    }
}

/* The file's alpha, or `otherwise`. False: it is no number. */
static bool alpha_of(tp_params *P, tp_file *F, double *alpha)
{
    if (tp_file_num(F, ALPHA, alpha)) return true;
    return tp_params_refuse(P, TP_E_IO, "%s", tp_file_why(F));
}

bool tp_lora_load(tp_params *P, tp_file *F)
{
    P = tp__params_some(P);
    char prefix[512];
    if (!begin(P, "tp_lora_load") || !tp__params_hold_values(P, "tp_lora_load", &P->refusal))
        return false;
    double alpha = P->lora->o.alpha;
    bool ok = !tp_file_ok(F) || alpha_of(P, F, &alpha);
    if (ok && alpha != P->lora->o.alpha)
        ok = tp_params_refuse(P, TP_E_VALUE, "%s: its alpha is %g, that of the parameters %g",
                              tp_file_path(F), alpha, P->lora->o.alpha);
    find_prefix(P, F, prefix, sizeof prefix);
    tp_slots S = slots_of(P);
    const tp_file_tensor **from =
        ok ? tp__slots_match(&S, F, prefix, &(tp_load_opts){ .convert = true }, "adaptations",
                             &P->refusal)
           : NULL;
    if (from) {
        ok = tp__slots_load(&S, F, from, &P->refusal, &P->err);
        if (ok || P->err.code != TP_OK) tp__params_touch(P);
    }
    ok = ok && from;
    free(from);
    tp__slots_free(&S);
    return ok;
}

/* ---- merging ---- */

/* W [out,in] += scale B [out,rank] A [rank,in]. */
static void add_product(double *w, const double *b, const double *a, const int64_t size[3],
                        double scale)
{
    const int64_t out = size[0], rank = size[1], in = size[2];
    for (int64_t i = 0; i < out; i++)
        for (int64_t r = 0; r < rank; r++) {
            const double factor = scale * b[i * rank + r];
            for (int64_t j = 0; j < in; j++) w[i * in + j] += factor * a[r * in + j];
        }
}

/* False, with a refusal, if the parameter has a second name. */
static bool is_single(tp_params *P, const char *what, const char *name)
{
    const tp_tensor p = tp_find(P, name);
    for (int i = 0; i < P->n; i++) {
        const tp_entry *e = &P->entries[i];
        if (e->node == p.node && strcmp(e->name, name) != 0)
            return tp_params_refuse(P, TP_E_VALUE,
                                    "%s: %.200s is also %.200s, which would change, too; keep the "
                                    "adaptation apart",
                                    what, name, e->name);
    }
    return true;
}

/* Host memory for a weight and its factors, in this order; NULL: P refuses. */
static double *room_for(tp_params *P, const char *what, const int64_t size[3])
{
    const int64_t n = size[0] * size[2] + size[0] * size[1] + size[1] * size[2];
    double *w = malloc((size_t)(n ? n : 1) * sizeof *w);
    if (!w) tp_params_refuse(P, TP_E_MEMORY, "%s: out of host memory", what);
    return w;
}

static bool merge_one(tp_params *P, const tp_lora_node *n)
{
    const tp_shape a = tp_shape_of(n->m.a), b = tp_shape_of(n->m.b);
    const int64_t size[3] = { b.dim[0], a.dim[0], a.dim[1] };
    const size_t bw = (size_t)(size[0] * size[2]), bb = (size_t)(size[0] * size[1]),
                 ba = (size_t)(size[1] * size[2]);
    double *w = room_for(P, "tp_lora_merge", size);
    if (!w) return false;
    double *vb = w + bw, *va = vb + bb;
    bool done = tp_param_get(P, n->weight, TP_F64, w, bw * sizeof *w) &&
                tp_param_get(P, n->m.b, TP_F64, vb, bb * sizeof *w) &&
                tp_param_get(P, n->m.a, TP_F64, va, ba * sizeof *w);
    if (done) add_product(w, vb, va, size, n->m.scale);
    if (done) memset(vb, 0, bb * sizeof *w);
    done = done && tp_param_set(P, n->weight, TP_F64, w, bw * sizeof *w) &&
           tp_param_set(P, n->m.b, TP_F64, vb, bb * sizeof *w);
    free(w);
    return done;
}

bool tp_lora_merge(tp_params *P)
{
    P = tp__params_some(P);
    if (!begin(P, "tp_lora_merge") || !tp__params_hold_values(P, "tp_lora_merge", &P->refusal))
        return false;
    for (const tp_lora_node *n = P->lora->nodes; n; n = n->next) {
        char name[1100];
        snprintf(name, sizeof name, "%s.weight", n->m.path);
        if (!is_single(P, "tp_lora_merge", name)) return false;
    }
    for (const tp_lora_node *n = P->lora->nodes; n; n = n->next)
        if (!merge_one(P, n)) return false;
    return true;
}

/* ---- a file's adaptations ---- */

/* What a tensor of a file is for. */
typedef struct target {
    const tp_file_tensor *a, *b; /* of an adaptation; a alone: a whole parameter */
    char name[1024];             /* of the parameter */
} target;

static bool same_shape(const tp_shape *a, const tp_shape *b)
{
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++) same = a->dim[i] == b->dim[i];
    return same;
}

/* The other tensor of a pair, whose name ends in `other` in place of `own`. NULL: there is none. */
static const tp_file_tensor *partner(const tp_file *F, const tp_file_tensor *t, const char *own,
                                     const char *other)
{
    char name[1100];
    snprintf(name, sizeof name, "%.*s%s", (int)(strlen(t->name) - strlen(own)), t->name, other);
    return tp_file_find(F, name);
}

/* Finds the target of a tensor, or none for a B. False, with a refusal: P cannot take it. */
static bool find_target(tp_params *P, const tp_file *F, const tp_file_tensor *t, const char *prefix,
                        target *to)
{
    const size_t skip = strncmp(t->name, prefix, strlen(prefix)) == 0 ? strlen(prefix) : 0;
    const char *name = t->name + skip;
    *to = (target){ .a = t };
    if (tp_ends_in(name, "." TP_LORA_B)) {
        to->a = NULL; /* with its A */
        return partner(F, t, TP_LORA_B, TP_LORA_A) ||
               tp_params_refuse(P, TP_E_VALUE, "%s: %.200s has no %s", tp_file_path(F), t->name,
                                TP_LORA_A);
    }
    const bool pair = tp_ends_in(name, "." TP_LORA_A);
    const size_t stem = strlen(name) - (pair ? strlen(TP_LORA_A) : 0);
    snprintf(to->name, sizeof to->name, "%.*s%s", (int)stem, name, pair ? "weight" : "");
    const tp_tensor p = tp_find(P, to->name);
    if (!tp_given(p))
        return tp_params_refuse(P, TP_E_VALUE, "%s: %.200s belongs to no parameter",
                                tp_file_path(F), t->name);
    const tp_shape s = tp_shape_of(p);
    if (!pair)
        return same_shape(&s, &t->shape) ||
               tp_params_refuse(P, TP_E_SHAPE, "%s: %.200s has another shape than the parameter",
                                tp_file_path(F), t->name);
    to->b = partner(F, t, TP_LORA_A, TP_LORA_B);
    const tp_shape *a = &t->shape, *b = to->b ? &to->b->shape : NULL;
    if (!b || s.ndim != 2 || a->ndim != 2 || b->ndim != 2 || a->dim[0] != b->dim[1] ||
        a->dim[1] != s.dim[1] || b->dim[0] != s.dim[0])
        return tp_params_refuse(P, TP_E_SHAPE, "%s: %.200s and %.20s do not fit the weight %.200s",
                                tp_file_path(F), t->name, TP_LORA_B, to->name);
    return is_single(P, tp_file_path(F), to->name);
}

/* Adds an adaptation to its weight, or replaces a parameter. */
static bool apply_one(tp_params *P, tp_file *F, const target *to, double alpha)
{
    const tp_tensor p = tp_find(P, to->name);
    const int64_t rank = to->b ? to->a->shape.dim[0] : 0;
    const int64_t in = to->b ? to->a->shape.dim[1] : tp_numel(p),
                  size[3] = { to->b ? to->b->shape.dim[0] : 1, rank, in };
    const size_t bytes = (size_t)(size[0] * in) * sizeof(double);
    double *w = room_for(P, tp_file_path(F), size);
    if (!w) return false;
    double *b = w + size[0] * in, *a = b + size[0] * rank;
    bool done = !to->b ? tp_file_read(F, to->a, TP_F64, w)
                       : tp_file_read(F, to->a, TP_F64, a) && tp_file_read(F, to->b, TP_F64, b);
    if (!done) tp_params_raise(P, TP_E_IO, "%s", tp_file_why(F));
    if (done && to->b) {
        done = tp_param_get(P, p, TP_F64, w, bytes);
        add_product(w, b, a, size, (alpha > 0 ? alpha : (double)rank) / (double)rank);
    }
    done = done && tp_param_set(P, p, TP_F64, w, bytes);
    free(w);
    return done;
}

bool tp_lora_apply(tp_params *P, tp_file *F, double alpha)
{
    P = tp__params_some(P);
    char prefix[512];
    target to;
    if (!tp__params_begin(P) || !tp__params_complete(P)) return false;
    if (P->lora)
        return tp_params_refuse(P, TP_E_STATE,
                                "tp_lora_apply: these parameters have adaptations themselves; "
                                "apply the file to the merged weights (tp_lora_merge) in "
                                "parameters without tp_lora");
    if (!tp_file_ok(F)) return tp_params_refuse(P, TP_E_IO, "%s", tp_file_why(F));
    if (!tp__has_lora(F))
        return tp_params_refuse(P, TP_E_VALUE, "%s has no adaptations", tp_file_path(F));
    if (!tp__params_hold_values(P, tp_file_path(F), &P->refusal) || !alpha_of(P, F, &alpha))
        return false;
    if (!(alpha >= 0) || !isfinite(alpha))
        return tp_params_refuse(P, TP_E_VALUE, "%s: alpha is %g; it must be positive",
                                tp_file_path(F), alpha);
    find_prefix(P, F, prefix, sizeof prefix);
    for (int i = 0; i < tp_file_count(F); i++)
        if (!find_target(P, F, tp_file_at(F, i), prefix, &to)) return false;
    for (int i = 0; i < tp_file_count(F); i++) {
        find_target(P, F, tp_file_at(F, i), prefix, &to);
        if (to.a && !apply_one(P, F, &to, alpha)) return false;
    }
    return true;
}
