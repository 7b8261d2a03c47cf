/* text_data.c - labelled texts, their class names and batches. */

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "imdb.h"

#define CLASSES "classes" /* metadata: a JSON array of names */

enum { MOST_CLASSES = 1 << 20 };

/* ---- classes ---- */

static bool make_room(class_list *l, size_t n)
{
    *l = (class_list){ .name = calloc(n + 1, sizeof *l->name) };
    return l->name != NULL;
}

bool class_list_of(class_list *l, const tp_documents *X)
{
    const int n = tp_documents_classes(X);
    bool done = make_room(l, (size_t)n);
    for (int i = 0; i < n && done; i++) {
        const char *name = tp_documents_class(X, i);
        char number[32];
        snprintf(number, sizeof number, "%d", i);
        l->name[i] = strdup(name ? name : number);
        done = l->name[i] != NULL;
        l->n += done;
    }
    return done;
}

bool class_list_read(class_list *l, tp_file *F, char *why, size_t size)
{
    const char *text = tp_file_meta(F, CLASSES);
    *l = (class_list){ 0 };
    if (!text) return true;
    errno = 0; /* jansson gives no reason, but malloc sets errno */
    json_t *all = json_loads(text, 0, NULL);
    const size_t n = json_array_size(all);
    bool done = json_is_array(all) && n <= MOST_CLASSES && make_room(l, n);
    for (size_t i = 0; i < n && done; i++) {
        const char *name = json_string_value(json_array_get(all, i));
        l->name[i] = name ? strdup(name) : NULL;
        done = l->name[i] != NULL;
        l->n += done;
    }
    json_decref(all);
    if (!done)
        snprintf(why, size,
                 errno == ENOMEM ? "%s: out of memory" : "%s: '" CLASSES "' is no list of names",
                 tp_file_path(F));
    return done;
}

void class_list_write(const class_list *l, tp_writer *W)
{
    json_t *all = json_array();
    bool whole = all != NULL;
    for (int i = 0; i < l->n && whole; i++)
        whole = json_array_append_new(all, json_string(l->name[i])) == 0;
    char *text = whole ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    tp_writer_meta(W, CLASSES, text); /* NULL fails the writer */
    free(text);
}

const char *class_list_at(const class_list *l, int64_t i, char buf[32])
{
    if (i >= 0 && i < l->n) return l->name[i];
    snprintf(buf, 32, "class %lld", (long long)i);
    return buf;
}

void class_list_free(class_list *l)
{
    for (int i = 0; i < l->n; i++) free(l->name[i]);
    free(l->name);
    *l = (class_list){ 0 };
}

/* ---- opening ---- */

tp_documents *texts_open(const text_data *d, const tp_bpe *vocab, text_view v)
{
    const bool named = v.classes && v.classes->n > 0;
    return tp_documents_labelled_texts(
        d->path, v.part, vocab,
        &(tp_labelled_opts){ .longest = v.length,
                             .tail = d->tail,
                             .text = d->text,
                             .label = d->label,
                             .name = named ? (const char *const *)v.classes->name : NULL,
                             .classes = named ? v.classes->n : 0,
                             .hold_back_every = d->hold_back,
                             .limit = v.limit });
}

/* ---- batches ---- */

tp_document_loader_opts text_batches(const tp_roberta_cfg *c, text_batching how)
{
    const int64_t step = c->kind == TP_ROBERTA_LS           ? c->window
                         : c->kind == TP_ROBERTA_LONGFORMER ? c->window / 2
                                                            : 1;
    tp_document_loader_opts o = { .batch = how.batch,
                                  .bucket = how.bucket,
                                  .packed = how.packed,
                                  .pad = TP_ROBERTA_PAD,
                                  .share = how.share };
    if (how.packed || step <= 1) return o;
    o.multiple = step;
    o.beyond = c->kind == TP_ROBERTA_LS;
    return o;
}

tp_tensor text_labels(const tp_tensor slot[DOC_SLOTS])
{
    return slot[doc_slots(slot)];
}

tp_tensor text_logits(tp_tape *T, const text_model *m, const tp_tensor slot[DOC_SLOTS])
{
    const tp_roberta *net = model_of(m);
    tp_tensor z;
    if (doc_slots(slot) == 3) {
        const tp_packed of = { slot[2], m->cfg.length };
        z = tp_roberta_forward_packed(
            T, net, (tp_roberta_packed){ .ids = slot[0], .position = slot[1], .of = of });
    } else {
        const tp_roberta_in in = { .ids = slot[0], .mask = slot[1] };
        z = tp_roberta_classify(T, net, tp_roberta_encode(T, net, in));
    }
    return tp_compute_dtype(T) == TP_BF16 ? tp_cast(T, z, TP_F32) : z;
}

static tp_tensor logits_of(tp_tape *T, const void *m, const tp_tensor slot[DOC_SLOTS])
{
    return text_logits(T, m, slot);
}

bool text_score(doc_score *s, tp_tape *T, const text_model *m, const tp_documents *X,
                text_batching how, doc_watch w)
{
    enum { ALL_BATCHES = INT32_MAX };
    const doc_model of = { m, logits_of, m->cfg.classes };
    how.bucket = how.packed ? 0 : ALL_BATCHES;
    const tp_document_loader_opts o = text_batches(&m->cfg, how);
    return doc_score_run(s, T, &of, X, &o, w);
}
