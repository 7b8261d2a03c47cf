/* loader.c - the loader of documents: measures a batch, then pads or packs it. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/document_loader.h>

#include "documents.h"
#include "engine/order.h"

enum { DOCUMENTS = 2 };

/* The memory of a batch for one document of its examples. */
typedef struct side {
    int32_t *ids, *position, *offset;
    uint8_t *mask;
    int64_t room; /* of ids, position and mask */
} side;

typedef struct state {
    const tp_documents *X;
    tp_document_loader_opts o;
    int documents;
    int64_t count, epoch; /* examples in the set, and of an epoch */
} state;

typedef struct slot {
    tp_document_batch b;
    int32_t *label; /* [batch] */
    side side[DOCUMENTS];
} slot;

static void slot_new(tp_loader *L, const void *of, void *at)
{
    const state *S = of;
    slot *s = at;
    const int64_t batch = S->o.batch < S->epoch ? S->o.batch : S->epoch;
    s->label = tp_loader_alloc(L, batch, sizeof *s->label);
    for (int k = 0; k < S->documents; k++)
        s->side[k].offset = tp_loader_alloc(L, batch + 1, sizeof *s->side[k].offset);
}

static void slot_free(const void *of, void *at)
{
    slot *s = at;
    (void)of;
    for (int k = 0; k < DOCUMENTS; k++) {
        free(s->side[k].ids);
        free(s->side[k].position);
        free(s->side[k].mask);
    }
}

static int64_t length_of(const void *of, int64_t number)
{
    const state *S = of;
    int64_t most = 0;
    for (int k = 0; k < S->documents; k++) {
        int64_t n;
        tp_documents_ids(S->X, number, k, &n);
        if (n > most) most = n;
    }
    return most;
}

/* ---- a batch ---- */

/* Makes room for n ids. */
static bool make_room(tp_loader *L, const state *S, side *s, int64_t n)
{
    if (n < 1 || n <= s->room) return n > 0;
    free(s->ids);
    free(s->mask);
    free(s->position);
    *s = (side){ .offset = s->offset, .room = n };
    s->ids = malloc((size_t)n * sizeof *s->ids);
    if (S->o.packed)
        s->position = malloc((size_t)n * sizeof *s->position);
    else
        s->mask = malloc((size_t)n);
    if (s->ids && (s->mask || s->position)) return true;
    s->room = 0;
    return tp_loader_fail(L, TP_E_MEMORY,
                          "documents: out of memory for a batch of %lld ids; lower the batch",
                          (long long)n);
}

static int64_t round_up(int64_t n, int64_t multiple)
{
    return n > 0 ? n + (multiple - n % multiple) % multiple : 0;
}

/* Returns the ids of the longest document k of n examples, and of all in *total. */
static int64_t longest_of(const state *S, int k, const int64_t *index, int64_t n, int64_t *total)
{
    int64_t longest = 0;
    *total = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t ids;
        tp_documents_ids(S->X, index[i], k, &ids);
        *total += ids;
        if (ids > longest) longest = ids;
    }
    return longest;
}

/* Measures document k of the batch: the longest, and the batch's length (packed: all ids). Padding
 * is that of the global batch: it may change the results of a model, and processes wait for the one
 * with the longest document in any case. */
static bool measure(tp_loader *L, const state *S, int k, const tp_loader_batch *head,
                    tp_document_batch *b)
{
    const int64_t multiple = S->o.multiple ? S->o.multiple : 1;
    int64_t total;
    const int64_t longest = longest_of(S, k, head->all, head->total, &total);
    b->longest[k] = longest_of(S, k, b->index, b->n, &total);
    b->length[k] = S->o.packed   ? total
                   : S->o.length ? S->o.length
                                 : round_up(longest - S->o.beyond, multiple) + S->o.beyond;
    if (b->length[k] > INT32_MAX / (S->o.packed ? 1 : b->n))
        return tp_loader_fail(
            L, TP_E_VALUE,
            "documents: a batch of %lld documents of %lld ids has more than 2^31; lower "
            "the batch",
            (long long)b->n, (long long)longest);
    return true;
}

static void pad(const state *S, const side *s, int k, const tp_document_batch *b)
{
    for (int64_t i = 0; i < b->n; i++) {
        int64_t n;
        const uint16_t *from = tp_documents_ids(S->X, b->index[i], k, &n);
        int32_t *ids = s->ids + i * b->length[k];
        uint8_t *mask = s->mask + i * b->length[k];
        for (int64_t j = 0; j < n; j++) {
            ids[j] = from[j];
            mask[j] = from[j] != S->o.pad;
        }
        for (int64_t j = n; j < b->length[k]; j++) ids[j] = S->o.pad;
        memset(mask + n, 0, (size_t)(b->length[k] - n));
    }
}

static void pack(const state *S, const side *s, int k, const tp_document_batch *b)
{
    int32_t at = 0;
    for (int64_t i = 0; i < b->n; i++) {
        int64_t n;
        const uint16_t *from = tp_documents_ids(S->X, b->index[i], k, &n);
        s->offset[i] = at;
        for (int64_t j = 0; j < n; j++, at++) {
            s->ids[at] = from[j];
            s->position[at] = (int32_t)j;
        }
    }
    s->offset[b->n] = at;
}

static void finish(tp_loader *L, void *of, const tp_loader_batch *head, void *at)
{
    const state *S = of;
    slot *s = at;
    tp_document_batch b = { .n = head->n,
                            .epoch = head->epoch,
                            .step = head->step,
                            .index = head->index,
                            .label = s->label };
    for (int64_t i = 0; i < b.n; i++) s->label[i] = tp_documents_label(S->X, b.index[i]);
    for (int k = 0; k < S->documents; k++) {
        side *d = &s->side[k];
        if (!measure(L, S, k, head, &b)) return;
        if (!make_room(L, S, d, S->o.packed ? b.length[k] : b.n * b.length[k])) return;
        if (S->o.packed)
            pack(S, d, k, &b);
        else
            pad(S, d, k, &b);
        b.ids[k] = d->ids;
        b.mask[k] = d->mask;
        b.position[k] = d->position;
        b.offset[k] = S->o.packed ? d->offset : NULL;
    }
    s->b = b;
}

static void feed(void *of, const void *at, tp_tape *T, tp_tensor to[])
{
    const state *S = of;
    const tp_document_batch *b = &((const slot *)at)->b;
    int c = 0;
    for (int k = 0; k < S->documents; k++) {
        if (S->o.packed) {
            tp_feed(T, &to[c++], TP_I32, TP_SHAPE(b->length[k]), b->ids[k]);
            tp_feed(T, &to[c++], TP_I32, TP_SHAPE(b->length[k]), b->position[k]);
            tp_feed(T, &to[c++], TP_I32, TP_SHAPE(b->n + 1), b->offset[k]);
        } else {
            tp_feed(T, &to[c++], TP_I32, TP_SHAPE(b->n, b->length[k]), b->ids[k]);
            tp_feed(T, &to[c++], TP_U8, TP_SHAPE(b->n, b->length[k]), b->mask[k]);
        }
    }
    tp_feed(T, &to[c], TP_I32, TP_SHAPE(b->n), b->label);
}

static const tp_loader_kind documents = { .name = "documents",
                                          .state = sizeof(state),
                                          .slot = sizeof(slot),
                                          .slot_new = slot_new,
                                          .slot_free = slot_free,
                                          .stream = "documents",
                                          .shuffle = TP_SHUFFLE_UP,
                                          .length = length_of,
                                          .finish = finish,
                                          .feed = feed };

/* ---- creating ---- */

static bool possible(tp_loader *L, const state *S)
{
    const tp_document_loader_opts *o = &S->o;
    if (!tp_documents_ok(S->X))
        return tp_loader_fail(L, TP_E_VALUE, "%.500s", tp_documents_why(S->X));
    if (o->batch < 1 || o->batch > INT32_MAX)
        return tp_loader_fail(L, TP_E_VALUE, "documents: the batch is %lld, not at least 1",
                              (long long)o->batch);
    if (o->bucket < 0 || o->bucket > INT32_MAX || o->length < 0 || o->multiple < 0 ||
        o->multiple > INT32_MAX || o->beyond < 0 || o->beyond > INT32_MAX)
        return tp_loader_fail(
            L, TP_E_VALUE,
            "documents: bucket %lld, length %lld, multiple %lld or beyond %lld is negative "
            "or too large",
            (long long)o->bucket, (long long)o->length, (long long)o->multiple,
            (long long)o->beyond);
    if (o->packed && (o->length || o->multiple || o->beyond))
        return tp_loader_fail(
            L, TP_E_VALUE,
            "documents: packed batches have no padding; set length, multiple and beyond "
            "to 0");
    if (o->length && o->length < tp_documents_longest(S->X))
        return tp_loader_fail(
            L, TP_E_VALUE,
            "documents: the longest has %lld ids, more than the length %lld; open the set "
            "with `longest` at most that",
            (long long)tp_documents_longest(S->X), (long long)o->length);
    const int64_t global = o->batch * tp_share_parts(o->share);
    if (S->epoch < global && (o->train || o->whole || S->epoch < 1))
        return tp_loader_fail(L, TP_E_VALUE,
                              "%.500s: %lld example%s too few for a batch of %lld; lower the batch",
                              S->X->from[0] ? S->X->from : "documents", (long long)S->epoch,
                              S->epoch == 1 ? " is" : "s are", (long long)global);
    return true;
}

/* Does a document have an id that is not padding (packed: only such ids)? */
static bool readable(const uint16_t *ids, int64_t n, int32_t pad, bool packed)
{
    int64_t i = 0;
    while (i < n && (ids[i] != pad) == packed) i++;
    return packed ? i == n : i < n;
}

static bool check_ids(tp_loader *L, const state *S)
{
    for (int64_t i = 0; i < S->count; i++)
        for (int k = 0; k < S->documents; k++) {
            int64_t n;
            const uint16_t *ids = tp_documents_ids(S->X, i, k, &n);
            if (readable(ids, n, S->o.pad, S->o.packed)) continue;
            return tp_loader_fail(
                L, TP_E_VALUE,
                "documents: document %d of example %lld %s %d, which is padding; images "
                "need a pixel_offset",
                k, (long long)i, S->o.packed ? "cannot be packed: it has the id" : "has no id but",
                S->o.pad);
        }
    return true;
}

tp_loader *tp_document_loader_new(const tp_documents *X, const tp_document_loader_opts *o)
{
    tp_loader *L = tp_loader_new(&documents);
    state *S = tp_loader_state(L, &documents);
    if (!S) return L;
    if (!X) {
        tp_loader_fail(L, TP_E_STATE, "documents: there is no set");
        return L;
    }
    const int64_t count = tp_documents_count(X);
    *S = (state){ .X = X,
                  .o = *o,
                  .documents = tp_documents_per_example(X),
                  .count = count,
                  .epoch = tp__order_length(o->sampler, count) };
    if (possible(L, S) && check_ids(L, S))
        tp_loader_open(L, &(tp_loader_examples){ .count = S->count },
                       &(tp_loader_opts){ .batch = o->batch,
                                          .seed = o->seed,
                                          .train = o->train,
                                          .whole = o->whole,
                                          .bucket = o->bucket,
                                          .sampler = o->sampler,
                                          .share = o->share });
    return L;
}

bool tp_document_loader_next(tp_loader *L, tp_document_batch *b)
{
    return tp_loader_take(L, &documents, b, sizeof *b);
}

int tp_document_loader_slots(const tp_loader *L)
{
    const state *S = tp_loader_state(L, &documents);
    return S ? S->documents * (S->o.packed ? 3 : 2) + 1 : 0;
}
