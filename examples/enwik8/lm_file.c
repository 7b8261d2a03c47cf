/* lm_file.c - a trained language model out of a checkpoint. */
#include "lm_file.h"

static bool read_header(lm_file *f, tp_file *F)
{
    tp_trained *t = &f->t;
    char why[2048];
    const char *vocab = tp_file_meta(F, "vocab");
    if (!lm_cfg_read(&f->cfg, F, why, sizeof why)) return tp_trained_fail(t, "%s", why);
    if (!vocab || !tp_vocab_parse(&f->vocab, vocab))
        return tp_trained_fail(t, "%s: the dictionary ('vocab') is %s", t->path,
                               vocab ? "malformed" : "missing");
    const tp_common_cfg o = tp_model_get(&f->cfg);
    if (f->vocab.size != o.outputs)
        return tp_trained_fail(t, "%s: the dictionary has %lld entries, the model %lld", t->path,
                               (long long)f->vocab.size, (long long)o.outputs);
    f->segment = o.cache;
    if (!tp_file_int(F, "segment", &f->segment)) return tp_trained_fail(t, "%s", tp_file_why(F));
    if (f->segment < 1 || f->segment > 1 << 24)
        return tp_trained_fail(t, "%s: a segment of %lld tokens", t->path, (long long)f->segment);
    return true;
}

bool lm_file_open(lm_file *f, const tp_trained_settings *o)
{
    *f = (lm_file){ .t = tp_trained_find(o) };
    tp_file *F = tp_file_open(f->t.path);
    const bool done = read_header(f, F);
    tp_file_close(F);
    return done;
}

bool lm_file_load(lm_file *f, const tp_machine_settings *o)
{
    tp_trained *t = &f->t;
    char why[512];
    if (!tp_model_check(&f->cfg, why, sizeof why))
        return tp_trained_fail(t, "impossible model: %s", why);
    tp_trained_open(t, o, 0, true);
    f->m = tp_net_new(t->P, "", &f->cfg);
    tp_file *F = tp_file_open(t->path);
    if (tp_file_ok(F))
        tp_net_load(t->P, f->m, F, false);
    else
        tp_trained_fail(t, "%s", tp_file_why(F));
    tp_file_close(F);
    return tp_trained_ok(t);
}

void lm_file_close(lm_file *f)
{
    tp_net_free(f->m);
    tp_trained_close(&f->t);
}
