/* lm_file.c - language models from checkpoints or published weights, their dictionaries, and the
 * cost of missing bytes. */
#include <math.h>
#include <stdio.h>

#include "enwik8.h"
#include "reports/models.h"

/* ---- missing bytes ---- */

enum { NONE = -2 /* not -1, which marks a missing target */, BITS_DROPPED = 8 };

unknown_bytes unknown_of(const tp_text *X, tp_part part)
{
    const tp_vocab *v = tp_text_vocab(X);
    unknown_bytes u = { .id = NONE };
    int64_t tokens;
    tp_text_ids(X, part, &tokens);
    for (int b = 0; b < 256; b++) {
        if (tp_vocab_knows(v, (uint8_t)b)) continue;
        u.bytes++;
        if (v->id[b] >= 0) u.id = v->id[b];
    }
    u.nats = u.bytes ? log(u.bytes) : 0;
    if (u.id == NONE && tokens > 0) u.share = (double)tp_text_unknown(X, part) / (double)tokens;
    return u;
}

int64_t unknown_in(const unknown_bytes *u, const int32_t *tokens, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += tokens[i] == u->id;
    return count;
}

double unknown_bpc(const unknown_bytes *u, double nats, int64_t tokens, int64_t unknown)
{
    const double dropped = u->share * (double)tokens, all = (double)tokens + dropped;
    return (nats + (double)unknown * u->nats) / all / log(2.0) + BITS_DROPPED * dropped / all;
}

void unknown_say(const unknown_bytes *u, int64_t count, const char *what, char *buf, size_t size)
{
    if (u->id == NONE)
        snprintf(
            buf, size,
            "%lld bytes of %s are not in the model's dictionary, which drops them; each counts "
            "%d bits",
            (long long)count, what, BITS_DROPPED);
    else
        snprintf(
            buf, size,
            "%lld bytes of %s are not in the model's dictionary; beside the bits of <unk> each "
            "counts %.2f for which of %d bytes it is",
            (long long)count, what, u->nats / log(2.0), u->bytes);
}

/* ---- checkpoints ---- */

bool lm_vocab_read(tp_vocab *v, const tp_file *F, char *why, size_t size)
{
    const char *text = tp_file_meta(F, "vocab");
    if (text && tp_vocab_parse(v, text)) return true;
    snprintf(why, size, "%s: the dictionary ('vocab') is %s", tp_file_path(F),
             text ? "malformed" : "missing");
    return false;
}

static bool read_header(lm_file *f, tp_file *F)
{
    tp_trained *t = &f->t;
    char why[5000];
    if (!lm_cfg_read(&f->cfg, F, why, sizeof why) || !lm_vocab_read(&f->vocab, F, why, sizeof why))
        return tp_trained_fail(t, "%s", why);
    const tp_common_cfg o = tp_model_get(&f->cfg);
    if (f->vocab.size != o.outputs)
        return tp_trained_fail(t, "%s: the dictionary has %lld entries, the model %lld", t->path,
                               (long long)f->vocab.size, (long long)o.outputs);
    f->segment = o.cache;
    if (!tp_file_int(F, "segment", &f->segment)) return tp_trained_fail(t, "%s", tp_file_why(F));
    if (f->segment < 1 || f->segment > 1 << 24)
        return tp_trained_fail(t, "%s: 'segment' is out of range: %lld", t->path,
                               (long long)f->segment);
    return true;
}

/* ---- published weights ---- */

static bool find_dictionary(tp_vocab *v, const lm_kind *kind, const char *vocab, const char *data,
                            char *why, size_t size)
{
    if (vocab) return tp_vocab_load(v, vocab, kind->style, why, size);
    tp_text *text = tp_text_open(data, &(tp_text_opts){ .style = kind->style });
    const bool done = tp_text_ok(text);
    if (done)
        *v = *tp_text_vocab(text);
    else
        snprintf(why, size, "%s", tp_text_why(text));
    tp_text_close(text);
    return done;
}

bool lm_published(tp_model_cfg *cfg, tp_file *F, const char *vocab, const char *data, tp_vocab *v,
                  char *why, size_t size)
{
    if (!tp_model_adopt(cfg, F, NULL, 0)) {
        snprintf(why, size, "%s", tp_file_why(F));
        return false;
    }
    if (!tp_file_find(F, cfg->model->head)) {
        snprintf(
            why, size,
            "%s has no '%s', so it is not for this model; 'tp-inspect --match any' lists those "
            "that it fits",
            tp_file_path(F), cfg->model->head);
        return false;
    }
    if (!find_dictionary(v, lm_kind_of(cfg->model), vocab, data, why, size)) return false;
    const int64_t tokens = tp_model_get(cfg).outputs;
    if (v->size == tokens) return true;
    snprintf(why, size,
             "%s has %lld tokens, the dictionary of %s %lld: give the text that the model was "
             "trained on (--data), or its dictionary (--vocab)",
             tp_file_path(F), (long long)tokens, vocab ? vocab : data, (long long)v->size);
    return false;
}

const char *lm_preset_known(int i)
{
    const tp_model_row *row;
    for (int k = 0; (row = tp_model_at(k)); k++)
        if (lm_kind_of(tp_model_of(row)) && i-- == 0) return row->name;
    return NULL;
}

bool lm_find_model(tp_model_cfg *cfg, const char *name, char *why, size_t size)
{
    if (!tp_model_preset(cfg, name, why, size)) return false;
    if (lm_kind_of(cfg->model)) return true;
    snprintf(why, size, "--preset %s is no language model; tp-models lists them", name);
    return false;
}

static bool open_published(lm_file *f, const lm_source *c)
{
    char why[2048];
    *f = (lm_file){ 0 };
    snprintf(f->t.path, sizeof f->t.path, "%.4096s", c->weights);
    if (c->t.checkpoint)
        return tp_trained_fail(&f->t, "--weights and --checkpoint exclude each other");
    if (!c->preset)
        return tp_trained_fail(&f->t,
                               "--weights %s: name its model with --preset, as ls_lm-small; "
                               "tp-models lists them",
                               c->weights);
    if (!c->data && !c->vocab)
        return tp_trained_fail(&f->t,
                               "--weights %s: its dictionary is needed: --data FILE, the text that "
                               "the model was trained on, or --vocab FILE, fairseq's dict.txt",
                               c->weights);
    tp_file *F = tp_file_open(c->weights);
    const bool done = lm_find_model(&f->cfg, c->preset, why, sizeof why) &&
                      lm_published(&f->cfg, F, c->vocab, c->data, &f->vocab, why, sizeof why);
    tp_file_close(F);
    f->segment = tp_model_get(&f->cfg).cache; /* as in the first phase of training */
    return done || tp_trained_fail(&f->t, "%s", why);
}

bool lm_file_open(lm_file *f, const lm_source *c)
{
    if (c->weights) return open_published(f, c);
    *f = (lm_file){ 0 };
    if (c->preset || c->vocab)
        return tp_trained_fail(&f->t,
                               "--%s belongs to published weights: give --weights FILE, or "
                               "leave it out",
                               c->preset ? "preset" : "vocab");
    *f = (lm_file){ .t = tp_trained_find(&c->t) };
    tp_file *F = tp_file_open(f->t.path);
    const bool done = read_header(f, F);
    tp_file_close(F);
    return done;
}

bool lm_file_load(lm_file *f, const tp_machine_settings *o)
{
    return trained_load(&f->t, o, &f->cfg, &f->m);
}

void lm_file_close(lm_file *f)
{
    tp_net_free(f->m);
    tp_trained_close(&f->t);
}
