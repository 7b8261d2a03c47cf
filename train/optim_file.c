/* optim_file.c - optimisers in training checkpoints: everything that the next step depends on, except
 * the options. */
#include <stdio.h>
#include <string.h>

#include "tensor/file/inner.h"
#include "train/optim.h"

static void state_slots(tp_slots *S, const tp_optim *O, int k)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.", O->kind->states[k].name);
    for (int i = 0; i < O->n; i++) {
        tp_view v = O->weights[i].state[k];
        if (v.ndim < 0) continue;
        const size_t at = (size_t)O->weights[i].at[k] * tp_dtype_size(O->P->dtype);
        v.data = O->state[k]->data ? (char *)O->state[k]->data + at : NULL;
        tp__slots_add(S, O->P->dev, prefix, O->weights[i].entry->name, &v, -1);
    }
}

/* States, and each parameter's count of updates. */
static tp_slots slots_of(tp_optim *O)
{
    tp_slots S = { 0 };
    for (int k = 0; k < TP_OPTIM_STATES; k++)
        if (O->state[k]) state_slots(&S, O, k);
    for (int i = 0; O->kind->counts && i < O->n; i++) {
        const tp_view v = tp__view(TP_I64, &TP_SCALAR, &O->weights[i].updates);
        tp__slots_add(&S, NULL, "updates.", O->weights[i].entry->name, &v, -1);
    }
    return S;
}

bool tp_optim_write(tp_optim *O, tp_writer *W)
{
    O = tp__optim_some(O);
    if (O->err.code != TP_OK) {
        tp__writer_fail(W, &O->err);
        return false;
    }
    tp_writer_meta(W, "optim.kind", O->kind->name);
    tp_writer_meta_int(W, "optim.updates", O->updates);
    tp_slots S = slots_of(O);
    tp__slots_write(&S, W, "optim.");
    tp__slots_free(&S);
    return tp_writer_ok(W);
}

/* The bound keeps later increments within 64 bits. */
static bool is_count(int64_t n)
{
    return n >= 0 && n <= INT64_C(1) << 60;
}

static void check_counts(tp_optim *O, const tp_file *F)
{
    for (int i = 0; i < O->n && O->err.code == TP_OK; i++)
        if (!is_count(O->weights[i].updates))
            tp__err(&O->err, TP_E_IO, "%.200s: 'optim.updates.%.100s' is out of range: %lld",
                    tp_file_path(F), O->weights[i].entry->name, (long long)O->weights[i].updates);
}

bool tp_optim_read(tp_optim *O, tp_file *F)
{
    if (!O || O->err.code != TP_OK) return false;
    const char *k = tp_file_meta(F, "optim.kind");
    int64_t updates = -1;
    if (!tp_file_int(F, "optim.updates", &updates))
        tp__err(&O->err, TP_E_IO, "%s", tp_file_why(F));
    else if (!k || updates < 0)
        tp__err(&O->err, TP_E_IO,
                "%.200s holds no optimiser state (metadata optim.kind, optim.updates)",
                tp_file_path(F));
    else if (!is_count(updates))
        tp__err(&O->err, TP_E_IO, "%.200s: 'optim.updates' is out of range: %lld", tp_file_path(F),
                (long long)updates);
    else if (strcmp(k, O->kind->name) != 0)
        tp__err(&O->err, TP_E_IO, "%.200s holds state of the optimiser '%.32s', this one is '%s'",
                tp_file_path(F), k, O->kind->name);
    if (O->err.code != TP_OK) return false;
    tp_slots S = slots_of(O);
    const bool ok = tp__slots_read(&S, F, "optim.", NULL, "moments", &O->err);
    tp__slots_free(&S);
    if (!ok) return false;
    O->updates = updates;
    check_counts(O, F);
    return O->err.code == TP_OK;
}
