/* loader.c - batches of documents.
 *
 * The order of an epoch is drawn once and kept; a batch is then gathered by its number. Sorting runs of the
 * shuffled order, not all of it, keeps batches different from epoch to epoch:
 *
 *     shuffled  | batch x bucket examples | ...        each run sorted by length, cut into batches,
 *     batches   | 3 | 1 | 2 | 4 |         | ...        and the batches of a run shuffled            */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/document_loader.h>
#include <tapegrad/random.h>

#include "documents.h"
#include "epochs.h"
#include "kit.h"

enum { WHY = 512, DOCUMENTS = 2 };

/* Memory of a batch for one document of its examples. */
typedef struct side {
    int32_t *ids, *position, *offset;
    uint8_t *mask;
    int64_t room; /* of ids, position and mask */
} side;

/* An example with the length by which it is sorted, and its place before, which keeps ties in order. */
typedef struct entry {
    int64_t index, length, place;
} entry;

struct tp_document_loader {
    const tp_documents *X;
    tp_document_loader_opts o;
    int documents;
    int64_t count; /* examples in the set */
    tp_epochs at;
    entry *order;    /* [count]: of epoch `ordered`             */
    entry *batches;  /* [count]: scratch for moving batches      */
    int64_t ordered; /* -1: none                                */
    int64_t *index;  /* [batch] */
    int32_t *label;  /* [batch] */
    side side[DOCUMENTS];
    char why[WHY];
};

static tp_document_loader no_memory = { .why = "documents: out of memory" };

/* Fails L unless it has failed before; false. */
#define fail(L, ...) tp__first_reason((L)->why, WHY, __VA_ARGS__)

/* ---- creating ---- */

static bool possible(tp_document_loader *L)
{
    const tp_document_loader_opts *o = &L->o;
    if (!tp_documents_ok(L->X)) return fail(L, "%.500s", tp_documents_why(L->X));
    if (o->batch < 1 || o->batch > INT32_MAX)
        return fail(L, "documents: the batch is %lld, not at least 1", (long long)o->batch);
    if (o->bucket < 0 || o->bucket > INT32_MAX || o->length < 0 || o->multiple < 0 ||
        o->multiple > INT32_MAX || o->beyond < 0 || o->beyond > INT32_MAX)
        return fail(L,
                    "documents: bucket %lld, length %lld, multiple %lld or beyond %lld is negative "
                    "or too large",
                    (long long)o->bucket, (long long)o->length, (long long)o->multiple,
                    (long long)o->beyond);
    if (o->packed && (o->length || o->multiple || o->beyond))
        return fail(L, "documents: packed batches have no padding; set length, multiple and beyond "
                       "to 0");
    if (o->length && o->length < tp_documents_longest(L->X))
        return fail(L,
                    "documents: the longest has %lld ids, more than the length %lld; open the set "
                    "with `longest` at most that",
                    (long long)tp_documents_longest(L->X), (long long)o->length);
    if (L->at.steps < 1)
        return fail(L, "%.500s: %lld example%s too few for a batch of %lld; lower the batch",
                    L->X->from[0] ? L->X->from : "documents", (long long)L->count,
                    L->count == 1 ? " is" : "s are", (long long)o->batch);
    return true;
}

/* Does a document have an id that is not padding (packed: only such ids)? */
static bool readable(const uint16_t *ids, int64_t n, int32_t pad, bool packed)
{
    int64_t i = 0;
    while (i < n && (ids[i] != pad) == packed) i++;
    return packed ? i == n : i < n;
}

static bool check_ids(tp_document_loader *L)
{
    for (int64_t i = 0; i < L->count; i++)
        for (int k = 0; k < L->documents; k++) {
            int64_t n;
            const uint16_t *ids = tp_documents_ids(L->X, i, k, &n);
            if (readable(ids, n, L->o.pad, L->o.packed)) continue;
            return fail(L,
                        "documents: document %d of example %lld %s %d, which is padding; images "
                        "need a pixel_offset",
                        k, (long long)i,
                        L->o.packed ? "cannot be packed: it has the id" : "has no id but",
                        L->o.pad);
        }
    return true;
}

static bool allocate(tp_document_loader *L)
{
    const int64_t batch = L->o.batch < L->count ? L->o.batch : L->count;
    L->order = malloc((size_t)L->count * sizeof *L->order);
    L->batches = malloc((size_t)L->count * sizeof *L->batches);
    L->index = malloc((size_t)batch * sizeof *L->index);
    L->label = malloc((size_t)batch * sizeof *L->label);
    bool fits = L->order && L->batches && L->index && L->label;
    for (int k = 0; k < L->documents; k++) {
        L->side[k].offset = malloc(((size_t)batch + 1) * sizeof *L->side[k].offset);
        fits = fits && L->side[k].offset;
    }
    return fits ||
           fail(L, "documents: out of memory for the order of %lld examples", (long long)L->count);
}

tp_document_loader *tp_document_loader_new(const tp_documents *X, const tp_document_loader_opts *o)
{
    tp_document_loader *L = calloc(1, sizeof *L);
    if (!L) return &no_memory;
    if (!X) {
        fail(L, "documents: there is no set");
        return L;
    }
    L->X = X;
    L->o = *o;
    L->documents = tp_documents_per_example(X);
    L->count = tp_documents_count(X);
    L->ordered = -1;
    L->at.endless = o->train;
    if (o->batch > 0)
        L->at.steps = o->train || o->whole ? L->count / o->batch
                                           : L->count / o->batch + (L->count % o->batch != 0);
    if (possible(L) && check_ids(L)) allocate(L);
    if (L->why[0]) L->at.steps = 0;
    return L;
}

void tp_document_loader_free(tp_document_loader *L)
{
    if (!L || L == &no_memory) return;
    for (int k = 0; k < DOCUMENTS; k++) {
        free(L->side[k].ids);
        free(L->side[k].position);
        free(L->side[k].offset);
        free(L->side[k].mask);
    }
    free(L->order);
    free(L->batches);
    free(L->index);
    free(L->label);
    free(L);
}

/* ---- the order of an epoch ---- */

static int by_length(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static int64_t length_of(const tp_document_loader *L, int64_t i)
{
    int64_t most = 0;
    for (int k = 0; k < L->documents; k++) {
        int64_t n;
        tp_documents_ids(L->X, i, k, &n);
        if (n > most) most = n;
    }
    return most;
}

/* Shuffles the n batches of a run. */
static void shuffle_batches(tp_document_loader *L, entry *run, int64_t n, tp_random *r)
{
    const size_t size = (size_t)L->o.batch * sizeof *run;
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = tp_random_below(r, i + 1);
        memcpy(L->batches + i * L->o.batch, L->batches + j * L->o.batch, size);
        memcpy(L->batches + j * L->o.batch, run + i * L->o.batch, size);
    }
    memcpy(run, L->batches, (size_t)n * size);
}

/* Sorts each run by length. Only whole batches change places: a smaller one stays last. */
static void sort_runs(tp_document_loader *L, int64_t used, tp_random *r)
{
    const int64_t batch = L->o.batch, whole = used / batch;
    const int64_t run = L->o.bucket < whole + 1 ? L->o.bucket : whole + 1;
    for (int64_t first = 0; first < used; first += run * batch) {
        const int64_t n = used - first < run * batch ? used - first : run * batch;
        qsort(L->order + first, (size_t)n, sizeof *L->order, by_length);
        if (L->o.train) shuffle_batches(L, L->order + first, n / batch, r);
    }
}

static void arrange(tp_document_loader *L, int64_t epoch)
{
    tp_random r = tp_random_stream(L->o.seed, "documents", 0, (uint64_t)epoch);
    const int64_t whole = L->at.steps * L->o.batch, used = whole < L->count ? whole : L->count;
    for (int64_t i = 0; i < L->count; i++) {
        const int64_t j = L->o.train ? tp_random_below(&r, i + 1) : i;
        L->order[i] = L->order[j];
        L->order[j] = (entry){ .index = i, .length = length_of(L, i) };
    }
    for (int64_t i = 0; i < L->count; i++) L->order[i].place = i;
    if (L->o.bucket > 1) sort_runs(L, used, &r);
    L->ordered = epoch;
}

/* ---- batches ---- */

/* Makes room for n ids. */
static bool make_room(tp_document_loader *L, side *s, int64_t n)
{
    if (n < 1 || n <= s->room) return n > 0;
    free(s->ids);
    free(s->mask);
    free(s->position);
    *s = (side){ .offset = s->offset, .room = n };
    s->ids = malloc((size_t)n * sizeof *s->ids);
    if (L->o.packed)
        s->position = malloc((size_t)n * sizeof *s->position);
    else
        s->mask = malloc((size_t)n);
    if (s->ids && (s->mask || s->position)) return true;
    s->room = 0;
    return fail(L, "documents: out of memory for a batch of %lld ids", (long long)n);
}

static int64_t round_up(int64_t n, int64_t multiple)
{
    return n > 0 ? n + (multiple - n % multiple) % multiple : 0;
}

/* Measures document k of the batch: the longest, and the length that it gets (packed: all ids). */
static bool measure(tp_document_loader *L, int k, tp_document_batch *b)
{
    const int64_t multiple = L->o.multiple ? L->o.multiple : 1;
    int64_t total = 0, longest = 0, n;
    for (int64_t i = 0; i < b->n; i++) {
        tp_documents_ids(L->X, L->index[i], k, &n);
        total += n;
        if (n > longest) longest = n;
    }
    b->longest[k] = longest;
    b->length[k] = L->o.packed   ? total
                   : L->o.length ? L->o.length
                                 : round_up(longest - L->o.beyond, multiple) + L->o.beyond;
    if (b->length[k] > INT32_MAX / (L->o.packed ? 1 : b->n))
        return fail(L,
                    "documents: a batch of %lld documents of %lld ids has more than 2^31; lower "
                    "the batch",
                    (long long)b->n, (long long)longest);
    return true;
}

static void pad(const tp_document_loader *L, int k, const tp_document_batch *b)
{
    const side *s = &L->side[k];
    for (int64_t i = 0; i < b->n; i++) {
        int64_t n;
        const uint16_t *from = tp_documents_ids(L->X, L->index[i], k, &n);
        int32_t *ids = s->ids + i * b->length[k];
        uint8_t *mask = s->mask + i * b->length[k];
        for (int64_t j = 0; j < n; j++) {
            ids[j] = from[j];
            mask[j] = from[j] != L->o.pad;
        }
        for (int64_t j = n; j < b->length[k]; j++) ids[j] = L->o.pad;
        memset(mask + n, 0, (size_t)(b->length[k] - n));
    }
}

static void pack(const tp_document_loader *L, int k, const tp_document_batch *b)
{
    const side *s = &L->side[k];
    int32_t at = 0;
    for (int64_t i = 0; i < b->n; i++) {
        int64_t n;
        const uint16_t *from = tp_documents_ids(L->X, L->index[i], k, &n);
        s->offset[i] = at;
        for (int64_t j = 0; j < n; j++, at++) {
            s->ids[at] = from[j];
            s->position[at] = (int32_t)j;
        }
    }
    s->offset[b->n] = at;
}

static bool gather(tp_document_loader *L, tp_document_batch *b)
{
    const int64_t first = L->at.step * L->o.batch, left = L->count - first;
    *b = (tp_document_batch){ .n = left < L->o.batch ? left : L->o.batch,
                              .epoch = L->at.epoch,
                              .step = L->at.step,
                              .index = L->index,
                              .label = L->label };
    for (int64_t i = 0; i < b->n; i++) {
        L->index[i] = L->order[first + i].index;
        L->label[i] = tp_documents_label(L->X, L->index[i]);
    }
    for (int k = 0; k < L->documents; k++) {
        side *s = &L->side[k];
        if (!measure(L, k, b) || !make_room(L, s, L->o.packed ? b->length[k] : b->n * b->length[k]))
            return false;
        if (L->o.packed)
            pack(L, k, b);
        else
            pad(L, k, b);
        b->ids[k] = s->ids;
        b->mask[k] = s->mask;
        b->position[k] = s->position;
        b->offset[k] = L->o.packed ? s->offset : NULL;
    }
    return true;
}

bool tp_document_loader_next(tp_document_loader *L, tp_document_batch *b)
{
    if (!L) return false;
    if (L->why[0] || !tp__epochs_more(&L->at)) return false;
    if (L->ordered < 0 || (L->o.train && L->ordered != L->at.epoch)) arrange(L, L->at.epoch);
    if (!gather(L, b)) return false;
    L->at.step++;
    return true;
}

void tp_document_loader_seek(tp_document_loader *L, int64_t epoch, int64_t step)
{
    if (!L) return;
    if (!L->why[0]) tp__epochs_seek(&L->at, epoch, step);
}

/* ---- feeding ---- */

int tp_document_loader_slots(const tp_document_loader *L)
{
    if (!L) return 0;
    return L->documents * (L->o.packed ? 3 : 2) + 1;
}

int64_t tp_document_loader_feed(tp_document_loader *L, tp_tape *T, int64_t epoch, int64_t step,
                                tp_tensor slot[])
{
    if (!L) {
        tp_raise_here(T, TP_E_STATE, "document_loader_feed: NULL was given in place of a loader");
        return 0;
    }
    tp_document_batch b;
    int c = 0;
    tp_document_loader_seek(L, epoch, step);
    const bool got = tp_document_loader_next(L, &b);
    if (L->why[0]) tp_raise(T, TP_E_VALUE, "%s", L->why);
    if (!got || !tp_ok(T)) return 0;
    for (int k = 0; k < L->documents; k++) {
        if (L->o.packed) {
            tp_feed(T, &slot[c++], TP_I32, TP_SHAPE(b.length[k]), b.ids[k]);
            tp_feed(T, &slot[c++], TP_I32, TP_SHAPE(b.length[k]), b.position[k]);
            tp_feed(T, &slot[c++], TP_I32, TP_SHAPE(b.n + 1), b.offset[k]);
        } else {
            tp_feed(T, &slot[c++], TP_I32, TP_SHAPE(b.n, b.length[k]), b.ids[k]);
            tp_feed(T, &slot[c++], TP_U8, TP_SHAPE(b.n, b.length[k]), b.mask[k]);
        }
    }
    tp_feed(T, &slot[c], TP_I32, TP_SHAPE(b.n), b.label);
    return tp_ok(T) ? b.n : 0;
}

/* ---- queries ---- */

bool tp_document_loader_ok(const tp_document_loader *L)
{
    if (!L) return false;
    return !L->why[0];
}
const char *tp_document_loader_why(const tp_document_loader *L)
{
    if (!L) return "document_loader: NULL was given in place of a loader";
    return L->why;
}
int64_t tp_document_loader_steps(const tp_document_loader *L)
{
    if (!L) return 0;
    return L->at.steps;
}
