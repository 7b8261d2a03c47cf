/* safetensors.c - saves and loads a parameter set's values. A parameter with several names is one
 * tensor; its other names are metadata. */
#include <stdlib.h>

#include "autograd/nodes.h"
#include "autograd/params.h"
#include "tensor/file/inner.h"
#include "tensor/file/slots.h"

/* A file without adaptations (lora.h) has the weights that they adapt. */
static void excuse(tp_slots *S, const tp_params *P, const tp_file *F)
{
    const bool lacks = P->lora && !tp__has_lora(F);
    for (int i = 0; i < S->n; i++) S->at[i].may_lack = lacks && tp_lora_is_name(S->at[i].name);
}

static tp_slots slots_of(tp_params *P)
{
    tp_slots S = { 0 };
    for (int i = 0; i < P->n; i++) {
        const tp_entry *e = &P->entries[i];
        tp__slots_add(&S, P->dev, "", e->name, &e->node->view, e->node->index);
    }
    return S;
}

/* Compares before allocating, so that a file that describes a model larger than memory is refused
 * for the tensors it lacks. */
bool tp_params_read(tp_params *P, tp_file *F, const char *prefix, const tp_load_opts *o)
{
    if (!tp__params_begin(P) || !tp__params_hold_values(P, tp_file_path(F), &P->refusal))
        return false;
    tp_slots S = slots_of(P);
    excuse(&S, P, F);
    const tp_file_tensor **from =
        tp__slots_match(&S, F, prefix ? prefix : "", o, "parameters", &P->refusal);
    bool ok = from && tp__params_complete(P);
    if (ok) {
        for (int i = 0; i < S.n; i++) S.at[i].view = P->entries[i].node->view;
        ok = tp__slots_load(&S, F, from, &P->refusal, &P->err);
        if (ok || P->err.code != TP_OK) tp__params_touch(P);
    }
    free(from);
    tp__slots_free(&S);
    return ok;
}

bool tp_params_write(tp_params *P, tp_writer *W, const char *prefix)
{
    if (!tp__params_complete(P)) {
        tp__writer_fail(W, &tp__params_some(P)->err);
        return false;
    }
    tp_slots S = slots_of(P);
    tp__slots_write(&S, W, prefix ? prefix : "");
    tp__slots_free(&S);
    return tp_writer_ok(W);
}

bool tp_load(tp_params *P, const char *path, const tp_load_opts *o)
{
    tp_file *F = tp_file_open(path);
    const bool ok = tp_params_read(P, F, "", o);
    tp_file_close(F);
    return ok;
}

bool tp_save(tp_params *P, const char *path)
{
    if (!tp__params_begin(P) || !tp__params_complete(P)) return false;
    tp_writer *W = tp_writer_new(path);
    tp__writer_no_nan(W);
    tp_writer_meta(W, "format", "pt"); /* PyTorch's names and layout: its loaders require this */
    const bool ok = tp_params_write(P, W, "") && tp_writer_commit(W);
    if (!ok) tp__err(&P->refusal, tp_writer_code(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    return ok;
}
