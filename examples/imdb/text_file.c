/* text_file.c - a model file's vocabulary and classes; trained classifiers. */
#include <stdio.h>

#include "imdb.h"

/* ---- the vocabulary ---- */

static void check(const tp_bpe *X, const char *name, char *why, size_t size)
{
    if (!tp_bpe_ok(X)) {
        snprintf(why, size, "%s", tp_bpe_why(X));
        return;
    }
    for (int k = TP_BPE_BEGIN; k <= TP_BPE_END; k++)
        if (tp_bpe_special_id(X, (tp_bpe_special)k) != k) {
            snprintf(why, size,
                     "%s: %s is not id %d, as RoBERTa's models need it; tp-bpe train "
                     "makes such a vocabulary",
                     name, tp_bpe_special_name((tp_bpe_special)k), k);
            return;
        }
    if (tp_bpe_special_id(X, TP_BPE_MASK) < 0) snprintf(why, size, "%s has no <mask>", name);
}

tp_bpe *tokenizer_open(const char *path, const tp_file *F, char *why, size_t size)
{
    tp_bpe *X = NULL;
    why[0] = '\0';
    if (path || F)
        X = tokenizer_find(path, F, why, size);
    else
        snprintf(why, size,
                 "--tokenizer PATH is required: the vocabulary of the model; "
                 "'tp-bpe train' makes one");
    if (!why[0]) check(X, path ? path : tp_file_path(F), why, size);
    if (!why[0]) return X;
    tp_bpe_close(X);
    return NULL;
}

/* ---- a trained classifier ---- */

static bool read_header(text_file *f, tp_file *F, const char *tokenizer)
{
    char why[5000];
    if (!tp_file_ok(F)) return tp_trained_fail(&f->t, "%s", tp_file_why(F));
    f->published = !tp_file_meta(F, "model");
    if (!model_describe(&f->cfg, F, why, sizeof why) ||
        !model_classes(&f->classes, &f->cfg, F, why, sizeof why))
        return tp_trained_fail(&f->t, "%s", why);
    if (f->cfg.head != TP_ROBERTA_CLS)
        return tp_trained_fail(&f->t,
                               "%s predicts masked tokens; 'imdb train --init' makes a classifier "
                               "of it",
                               f->t.path);
    if (f->classes.n > 0 && f->classes.n != f->cfg.classes)
        return tp_trained_fail(&f->t, "%s: %d names for %lld classes", f->t.path, f->classes.n,
                               (long long)f->cfg.classes);
    if (!tp_file_int(F, "text_tail", &f->tail)) return tp_trained_fail(&f->t, "%s", tp_file_why(F));
    if (f->tail < 0 || f->tail > INT64_C(1) << 20)
        return tp_trained_fail(&f->t, "%s: 'text_tail' is out of range", f->t.path);
    f->vocab = tokenizer_open(tokenizer, F, why, sizeof why);
    if (!f->vocab) return tp_trained_fail(&f->t, "%s", why);
    if (tp_bpe_size(f->vocab) > f->cfg.vocab)
        return tp_trained_fail(&f->t, "the vocabulary has %lld entries, the model in %s only %lld",
                               (long long)tp_bpe_size(f->vocab), f->t.path,
                               (long long)f->cfg.vocab);
    return true;
}

bool text_file_open(text_file *f, const tp_trained_settings *o, const char *tokenizer,
                    int64_t length)
{
    f->t = tp_trained_find(o);
    tp_file *F = tp_file_open(f->t.path);
    bool done = read_header(f, F, tokenizer);
    tp_file_close(F);
    if (done && length > f->cfg.length)
        done = tp_trained_fail(&f->t,
                               "--length %lld is longer than the model's %lld tokens: "
                               "'imdb convert' extends it",
                               (long long)length, (long long)f->cfg.length);
    return done;
}

int64_t text_file_tail(const text_file *f, int64_t length)
{
    return f->tail <= length - 2 ? f->tail : 0; /* <s> and </s> stay, too */
}

bool text_file_load(text_file *f, const tp_machine_settings *o)
{
    const tp_model_cfg c = tp_model_cfg_of(&tp_model_roberta, &f->cfg);
    f->m.cfg = f->cfg;
    return trained_load(&f->t, o, &c, &f->m.net);
}

void text_file_close(text_file *f)
{
    model_free(&f->m);
    class_list_free(&f->classes);
    tp_bpe_close(f->vocab);
    tp_trained_close(&f->t);
}
