/* lra_file.c - trained encoders from checkpoints: model, task, and how they were fed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lra.h"
#include "reports/models.h"

static bool read_header(lra_file *f, tp_file *F)
{
    char why[5000];
    int64_t sorted = -1, packed = 0;
    if (!tp_file_ok(F)) return tp_trained_fail(&f->t, "%s", tp_file_why(F));
    if (!encoder_read(&f->cfg, F, why, sizeof why) || !task_data_read(&f->d, F, why, sizeof why))
        return tp_trained_fail(&f->t, "%s", why);
    if (!tp_file_int(F, "sorted", &sorted)) return tp_trained_fail(&f->t, "%s", tp_file_why(F));
    if (sorted < 0 || sorted > 1)
        return tp_trained_fail(&f->t, "%s: 'sorted' is neither 0 nor 1", f->t.path);
    if (tp_file_meta(F, "packed") && !tp_file_int(F, "packed", &packed))
        return tp_trained_fail(&f->t, "%s", tp_file_why(F));
    if (packed < 0 || packed > 1)
        return tp_trained_fail(&f->t, "%s: 'packed' is neither 0 nor 1", f->t.path);
    const char *attention = tp_file_meta(F, "attention");
    snprintf(f->attention, sizeof f->attention, "%s", attention ? attention : "");
    f->sorted = sorted;
    f->packed = packed;
    return true;
}

/* Sets the documents' path and compares the model with the task. */
static bool complete(lra_file *f, const char *data)
{
    const tp_task *t = task_of(&f->d);
    if (f->d.path && !data)
        return tp_trained_fail(&f->t, "--data PATH is required: %s was trained on files of %s",
                               f->t.path, t->name);
    if (data) {
        free(f->d.path);
        f->d.path = strdup(data);
        if (!f->d.path) return tp_trained_fail(&f->t, "out of memory");
    }
    if (f->cfg.classes < t->classes || f->cfg.pair != (t->documents == 2) ||
        f->cfg.vocab < t->ids || f->cfg.attn.length != f->d.length)
        return tp_trained_fail(&f->t, "%s: the model does not fit the task %s", f->t.path, t->name);
    return true;
}

bool lra_file_open(lra_file *f, const tp_trained_settings *o, const char *data)
{
    f->t = tp_trained_find(o);
    tp_file *F = tp_file_open(f->t.path);
    const bool done = read_header(f, F) && complete(f, data);
    tp_file_close(F);
    return done;
}

bool lra_file_load(lra_file *f, const tp_machine_settings *o)
{
    const tp_model_cfg c = tp_model_cfg_of(&tp_model_lra, &f->cfg);
    f->m.cfg = f->cfg;
    return trained_load(&f->t, o, &c, &f->m.net);
}

bool lra_file_batching(lra_file *f, int64_t batch, int packed, encoder_batching *how)
{
    *how = (encoder_batching){ .batch = batch,
                               .bucket = f->sorted || f->packed ? 2 : 0,
                               .packed = packed == PACKED_AS_TRAINED ? f->packed : packed == 1 };
    if (!how->packed || tp_lra_packs(&f->cfg)) return true;
    return tp_trained_fail(&f->t, "%s: " UNPACKABLE ": --packed no pads them", f->t.path);
}

void lra_file_close(lra_file *f)
{
    encoder_free(&f->m);
    task_data_free(&f->d);
    tp_trained_close(&f->t);
}
