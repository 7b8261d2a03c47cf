/* optim_file.c - optimisers in training checkpoints: all that the next step needs but the
 * options. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/file/inner.h"
#include "train/optim.h"
#include "train/peers/exchange.h"

/* The place in state k of a part. */
static void *part_data(const tp_optim *O, const tp_part *p, int k)
{
    char *data = O->state[k]->data;
    return data ? data + (size_t)p->at[k] * tp_dtype_size(O->P->dtype) : NULL;
}

/* The stretches of all processes of state k of a weight; NULL without memory. */
static tp_owned *stretches(const tp_optim *O, const tp_weight *w, int k, int *n)
{
    const int entry = (int)(w->entry - O->P->entries),
              rank = tp_peers_rank(tp__exchange_peers(O->P));
    const bool shaped = O->kind->states[k].shape != NULL; /* of a whole parameter */
    const tp_part *own = &O->parts[w->part];
    tp_owned *at = calloc((size_t)O->cuts.n + 1, sizeof *at);
    *n = 0;
    for (int i = 0; at && i < O->cuts.n; i++) {
        const tp_cut *t = &O->cuts.at[i];
        if (t->entry != entry) continue;
        at[*n] = (tp_owned){ .owner = t->owner,
                             .bytes = shaped ? tp__view_bytes(&w->state[k])
                                             : (size_t)t->numel * tp_dtype_size(O->P->dtype),
                             .data = t->owner == rank ? part_data(O, own++, k) : NULL,
                             .dev = O->P->dev->be->kind == TP_CPU ? NULL : O->P->dev };
        ++*n;
    }
    return at;
}

static void state_slots(tp_slots *S, const tp_optim *O, int k)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.", O->kind->states[k].name);
    for (int i = 0; i < O->n; i++) {
        const tp_weight *w = &O->weights[i];
        tp_view v = w->state[k];
        int n;
        if (v.ndim < 0 || !w->placed) continue;
        if (O->cuts.at && w->entry->node->view.numel > 0) {
            tp_owned *at = stretches(O, w, k, &n);
            tp__slots_add_stretches(S, O->P->dev, prefix, w->entry->name, &v, at, n);
        } else {
            v.data = part_data(O, &O->parts[w->part], k);
            tp__slots_add(S, O->P->dev, prefix, w->entry->name, &v, -1);
        }
    }
}

/* Each parameter's update count; `counts` replaces them unless NULL. */
static void count_slots(tp_slots *S, tp_optim *O, int64_t *counts)
{
    for (int i = 0; O->kind->counts && i < O->n; i++) {
        int64_t *at = counts ? &counts[i] : &O->weights[i].updates;
        const tp_view v = tp__view(TP_I64, &TP_SCALAR, at);
        tp__slots_add(S, NULL, "updates.", O->weights[i].entry->name, &v, -1);
    }
}

static tp_slots slots_of(tp_optim *O, int64_t *counts)
{
    tp_slots S = { 0 };
    for (int k = 0; k < TP_OPTIM_STATES; k++)
        if (O->state[k]) state_slots(&S, O, k);
    count_slots(&S, O, counts);
    return S;
}

/* An optimiser's place in a file: the caller's prefix and "optim.". */
typedef struct place {
    char prefix[256], kind[288], updates[288]; /* of the tensors; keys */
} place;

/* False if the prefix is too long. */
static bool place_of(const char *prefix, place *p)
{
    const int n = snprintf(p->prefix, sizeof p->prefix, "%soptim.", prefix ? prefix : "");
    snprintf(p->kind, sizeof p->kind, "%skind", p->prefix);
    snprintf(p->updates, sizeof p->updates, "%supdates", p->prefix);
    return n >= 0 && (size_t)n < sizeof p->prefix;
}

/* The name of this kind's state in a checkpoint. */
static const char *stored(const tp_optim *O)
{
    return O->kind->stored ? O->kind->stored : O->kind->name;
}

typedef struct key {
    char text[288];
} key;

static key sum_key(const tp_optim *O, const place *at, int i)
{
    key k;
    snprintf(k.text, sizeof k.text, "%s%.24s", at->prefix, O->kind->sums[i]);
    return k;
}

static const char too_long[] = "the prefix of an optimiser has more than 200 characters";

bool tp_optim_write(tp_optim *O, tp_writer *W, const char *prefix)
{
    place at;
    tp_err e = { 0 };
    O = tp__optim_some(O);
    if (O->err.code != TP_OK)
        e = O->err;
    else if (!place_of(prefix, &at))
        tp__err(&e, TP_E_VALUE, "%s", too_long);
    else if (O->kept)
        tp__params_hold_values(O->P, "tp_optim_write", &e);
    else
        tp__optim_usable(O, "tp_optim_write", &e);
    if (e.code != TP_OK) {
        tp__writer_fail(W, &e);
        return false;
    }
    tp_writer_meta(W, at.kind, stored(O));
    tp_writer_meta_int(W, at.updates, O->updates);
    for (int i = 0; i < TP_OPTIM_SUMS && O->kind->sums[i]; i++)
        tp_writer_meta_num(W, sum_key(O, &at, i).text, O->sum[i]);
    tp_slots S = slots_of(O, NULL);
    tp__slots_write(&S, W, at.prefix);
    tp__slots_free(&S);
    return tp_writer_ok(W);
}

/* The bound keeps later increments within 64 bits. */
static bool is_count(int64_t n)
{
    return n >= 0 && n <= INT64_C(1) << 60;
}

/* Reads the total update count. False, with the refusal set: the state is not of O's kind. */
static bool read_kind(tp_optim *O, tp_file *F, const place *at, int64_t *updates)
{
    tp_err *e = &O->refusal;
    const char *k = tp_file_meta(F, at->kind);
    *updates = -1;
    if (!tp_file_int(F, at->updates, updates))
        tp__err(e, TP_E_IO, "%s", tp_file_why(F));
    else if (!k || *updates < 0)
        tp__err(e, TP_E_IO, "%.200s holds no optimiser state (metadata %s, %s)", tp_file_path(F),
                at->kind, at->updates);
    else if (!is_count(*updates))
        tp__err(e, TP_E_IO, "%.200s: '%s' is out of range: %lld", tp_file_path(F), at->updates,
                (long long)*updates);
    else if (strcmp(k, stored(O)) != 0)
        tp__err(e, TP_E_IO, "%.200s holds state of the optimiser '%.32s', this one is '%s'",
                tp_file_path(F), k, stored(O));
    return e->code == TP_OK;
}

static bool read_sums(tp_optim *O, tp_file *F, const place *at, double *sum)
{
    for (int i = 0; i < TP_OPTIM_SUMS && O->kind->sums[i]; i++) {
        const key k = sum_key(O, at, i);
        sum[i] = -1.0;
        if (tp_file_num(F, k.text, &sum[i]) && sum[i] >= 0.0 && isfinite(sum[i])) continue;
        tp__err(&O->refusal, TP_E_IO,
                "%.200s: the metadata '%s' must be a finite number, at least 0", tp_file_path(F),
                k.text);
        return false;
    }
    return true;
}

/* Reads the parameters' counts, the last slots. */
static bool read_counts(tp_optim *O, tp_file *F, const place *at, const tp_slots *S,
                        const tp_file_tensor *const *from, int64_t *counts)
{
    for (int i = 0; O->kind->counts && i < O->n; i++) {
        if (!tp_file_read(F, from[S->n - O->n + i], TP_I64, &counts[i])) {
            tp__err(&O->refusal, TP_E_IO, "%s", tp_file_why(F));
            return false;
        }
        if (is_count(counts[i])) continue;
        tp__err(&O->refusal, TP_E_IO, "%.200s: '%supdates.%.100s' is out of range: %lld",
                tp_file_path(F), at->prefix, O->weights[i].entry->name, (long long)counts[i]);
        return false;
    }
    return true;
}

/* Where to look for the states of a parameter. */
typedef struct source {
    const tp_file *F;
    const place *at;
} source;

/* Has the file a state of the parameter? */
static bool is_in(const tp_optim *O, const tp_weight *w, const void *env)
{
    const source *s = env;
    char name[1400]; /* prefix, state and the longest path */
    for (int k = 0; k < TP_OPTIM_STATES; k++) {
        if (!O->state[k]) continue;
        const int n = snprintf(name, sizeof name, "%s%s.%s", s->at->prefix, O->kind->states[k].name,
                               w->entry->name);
        if (n > 0 && (size_t)n < sizeof name && tp_file_find(s->F, name)) return true;
    }
    return false;
}

static bool read(tp_optim *O, tp_file *F, const place *at, int64_t *counts)
{
    const tp_places before = tp__optim_places(O);
    if (!tp__optim_place(O, is_in, &(source){ F, at }, &O->refusal)) return false;
    tp_slots S = slots_of(O, counts);
    const tp_file_tensor **from = tp__slots_match(&S, F, at->prefix, NULL, "moments", &O->refusal);
    const bool ok = from && read_counts(O, F, at, &S, from, counts) &&
                    tp__slots_load(&S, F, from, &O->refusal, &O->err);
    free(from);
    tp__slots_free(&S);
    if (!ok) tp__optim_unplace(O, &before);
    return ok;
}

bool tp_optim_read(tp_optim *O, tp_file *F, const char *prefix)
{
    place at;
    int64_t updates;
    if (!O || O->err.code != TP_OK) return false;
    O->refusal = (tp_err){ .dev = O->dev };
    if (!tp__optim_usable(O, "tp_optim_read", &O->refusal)) return false;
    if (!place_of(prefix, &at)) {
        tp__err(&O->refusal, TP_E_VALUE, "%s", too_long);
        return false;
    }
    double sum[TP_OPTIM_SUMS] = { 0.0 };
    if (O->kept && !tp__params_hold_values(O->P, "tp_optim_read", &O->refusal)) return false;
    if (!read_kind(O, F, &at, &updates) || !read_sums(O, F, &at, sum)) return false;
    int64_t *counts = calloc((size_t)O->n + 1, sizeof *counts);
    if (!counts)
        tp__err(&O->refusal, TP_E_MEMORY, "%.200s: out of host memory while reading",
                tp_file_path(F));
    const bool ok = counts && read(O, F, &at, counts);
    if (ok) O->updates = updates;
    if (ok) memcpy(O->sum, sum, sizeof sum);
    for (int i = 0; ok && O->kind->counts && i < O->n; i++) O->weights[i].updates = counts[i];
    free(counts);
    return ok;
}
