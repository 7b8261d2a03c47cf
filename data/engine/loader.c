/* loader.c - the engine of all loaders: position, batches, bad examples, the first failure. The
 * caller's thread cuts the order of an epoch into batches; the ring has them made. */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/order.h"
#include "engine/ring.h"
#include "kit.h"

enum { WHY = 2048, LAST_EPOCH = 0x7fffffff };

/* What is known about an example. */
enum { BAD = 1, TOLD = 2 };

/* A message about an example that the caller has not received yet. */
typedef struct note {
    int64_t number;
    char why[TP_EXAMPLE_WHY];
} note;

typedef struct slot {
    tp_loader_batch b;
    int64_t *index; /* [batch], or fewer if the epoch is smaller */
    int64_t *all;   /* [global], likewise */
    bool *left_out;
    void *of_kind;
} slot;

/* Memory freed with the loader. */
typedef struct block {
    struct block *next;
    max_align_t bytes[];
} block;

typedef struct place {
    int64_t epoch, step;
} place;

struct tp_loader {
    const tp_loader_kind *kind;
    tp_loader_opts o;
    tp_loader_examples X;
    int64_t global, from;     /* the batch of all processes; the first row of this one */
    int64_t steps, own;       /* global batches of an epoch; those with rows of this process */
    place fed;                /* the batch that was asked for last, by feeding; step -1: none */
    place added, next;        /* of the batch to be added to the ring next, and to be taken next */
    int64_t *order, order_of; /* the order of epoch order_of, or -1; [count], or a sampler's */
    slot *slot;               /* [ahead] */
    unsigned char *work;      /* [workers] */
    tp_ring *ring;
    block *memory;
    double waited;
    _Atomic int64_t skipped;
    pthread_mutex_t lock; /* of the following members */
    uint8_t *known;       /* [count]; NULL: nothing is known */
    note *note;
    size_t notes, notes_room;
    atomic_bool failed; /* code and why are complete and no longer change */
    tp_code code;
    char why[WHY];
    max_align_t state[];
};

static tp_loader no_memory = { .failed = true,
                               .code = TP_E_MEMORY,
                               .why = "loader: out of memory; close other programs" };

/* ---- failing ---- */

bool tp_loader_fail(tp_loader *L, tp_code code, const char *format, ...)
{
    va_list args;
    if (!L || L == &no_memory) return false;
    pthread_mutex_lock(&L->lock);
    if (!L->failed) {
        va_start(args, format);
        vsnprintf(L->why, WHY, format, args);
        va_end(args);
        L->code = code;
        L->failed = true;
    }
    pthread_mutex_unlock(&L->lock);
    return false;
}

static bool no_room(tp_loader *L)
{
    return tp_loader_fail(L, TP_E_MEMORY,
                          "%s: out of memory; lower the batch, or how many are made ahead",
                          L->kind->name);
}

static const char *name_of(const tp_loader *L, int64_t number, char *buf, size_t size)
{
    const char *name =
        L->kind->example_name ? L->kind->example_name(L->state, number, buf, size) : NULL;
    if (name) return name;
    snprintf(buf, size, "example %lld", (long long)number);
    return buf;
}

/* Fails with a message that names the example. */
static void fail_at(tp_loader *L, int64_t number, tp_code code, const char *why)
{
    char buf[512];
    const char *name = name_of(L, number, buf, sizeof buf);
    const bool named = strstr(why, name) != NULL;
    tp_loader_fail(L, code, "%s%s%s", named ? "" : name, named ? "" : ": ", why);
}

/* ---- opening ---- */

/* Rounds up, so that an array of such pieces is aligned for any type. */
static size_t aligned(size_t bytes)
{
    return (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
}

tp_loader *tp_loader_new(const tp_loader_kind *kind)
{
    static const tp_loader_kind none = { .name = "loader" };
    const tp_loader_kind *own = kind ? kind : &none;
    tp_loader *L = calloc(1, sizeof *L + own->state);
    if (!L) return &no_memory;
    L->kind = own;
    L->order_of = L->fed.step = -1;
    pthread_mutex_init(&L->lock, NULL);
    if (!kind) tp_loader_fail(L, TP_E_STATE, "loader: NULL was given in place of a kind");
    return L;
}

void *tp_loader_state(const tp_loader *L, const tp_loader_kind *kind)
{
    return L && L->kind == kind ? (void *)(uintptr_t)L->state : NULL;
}

static void *new_block(tp_loader *L, size_t bytes)
{
    block *b = calloc(1, sizeof *b + bytes);
    if (!b) return NULL;
    b->next = L->memory;
    L->memory = b;
    return b->bytes;
}

void *tp_loader_alloc(tp_loader *L, int64_t n, size_t size)
{
    if (!L || L->failed) return NULL;
    const bool fits = n >= 0 && (uint64_t)n <= (SIZE_MAX - sizeof(block)) / (size ? size : 1);
    void *bytes = fits ? new_block(L, (size_t)n * size) : NULL;
    if (!bytes) no_room(L);
    return bytes;
}

static void new_slots(tp_loader *L)
{
    const int64_t batch = L->o.batch < L->X.length ? L->o.batch : L->X.length;
    const int64_t global = L->global < L->X.length ? L->global : L->X.length;
    L->slot = tp_loader_alloc(L, L->o.ahead, sizeof *L->slot);
    for (int i = 0; i < L->o.ahead && !L->failed; i++) {
        slot *s = &L->slot[i];
        s->b.index = s->index = tp_loader_alloc(L, batch, sizeof *s->index);
        s->b.all = s->all = tp_loader_alloc(L, global, sizeof *s->all);
        s->left_out = tp_loader_alloc(L, batch, sizeof *s->left_out);
        s->of_kind = tp_loader_alloc(L, 1, L->kind->slot);
        if (s->of_kind && L->kind->slot_new) L->kind->slot_new(L, L->state, s->of_kind);
    }
}

static void work_piece(void *env, int at, int64_t piece, int worker);
static void finish_batch(void *env, int at);

static void allocate(tp_loader *L)
{
    const tp_ring_opts ring = { .threads = L->o.threads,
                                .slots = L->o.ahead,
                                .piece = work_piece,
                                .finish = finish_batch,
                                .env = L };
    const bool *missing = L->X.missing;
    L->X.missing = NULL;
    const int64_t orders = L->o.sampler ? L->X.length : L->X.count;
    if (!L->kind->number) L->order = tp_loader_alloc(L, orders, sizeof *L->order);
    L->work = tp_loader_alloc(L, L->o.threads + 1, aligned(L->kind->work + 1));
    if (missing) L->known = tp_loader_alloc(L, L->X.count, 1);
    for (int64_t i = 0; missing && L->known && i < L->X.count; i++) {
        L->known[i] = missing[i] ? BAD : 0;
        L->skipped += missing[i];
    }
    new_slots(L);
    if (!L->failed && !(L->ring = tp__ring_new(&ring))) no_room(L);
}

static bool count_steps(tp_loader *L)
{
    const int64_t n = L->X.length, B = L->o.batch;
    if (B < 1 || B > INT32_MAX)
        return tp_loader_fail(L, TP_E_VALUE, "%s: the batch is %lld, not 1 to 2^31 - 1",
                              L->kind->name, (long long)B);
    if (!tp__share_ok(L->o.share))
        return tp_loader_fail(L, TP_E_VALUE, "%s: " TP_NO_SHARE, L->kind->name, L->o.share.rank,
                              L->o.share.ranks);
    if (n < 1) return tp_loader_fail(L, TP_E_VALUE, "there are no %s to load", L->kind->name);
    L->global = B * tp_share_parts(L->o.share);
    L->from = B * L->o.share.rank;
    const int64_t whole = n / L->global, rest = n % L->global;
    const bool partial = !L->o.train && !L->o.whole && rest > 0;
    L->steps = whole + partial;
    L->own = whole + (partial && rest > L->from);
    if (L->steps > 0) return true;
    return tp_loader_fail(L, TP_E_VALUE, "%lld %s do not fill a batch of %lld: lower the batch",
                          (long long)n, L->kind->name, (long long)L->global);
}

/* Takes the length of an epoch from the sampler. */
static bool take_sampler(tp_loader *L)
{
    const tp_example_sampler *s = L->o.sampler;
    if (!s) return true;
    if (L->kind->number)
        return tp_loader_fail(L, TP_E_VALUE, "%s have an order of their own: give no sampler",
                              L->kind->name);
    if (!s->order || s->length < 0 || s->length > INT64_MAX / (int64_t)sizeof *L->order)
        return tp_loader_fail(L, TP_E_VALUE,
                              "%s: the sampler needs a function, and a length of at least 0",
                              L->kind->name);
    L->X.length = tp__order_length(s, L->X.count);
    return true;
}

void tp_loader_open(tp_loader *L, const tp_loader_examples *X, const tp_loader_opts *o)
{
    if (!L || L->failed) return;
    L->X = *X;
    L->o = *o;
    if (L->X.length < 1) L->X.length = X->count;
    if (L->X.tries < 1) L->X.tries = o->sampler ? 1 : X->count;
    if (L->o.threads < 0) L->o.threads = 0;
    if (L->o.ahead < 1) L->o.ahead = L->o.threads ? 4 : 1;
    if (take_sampler(L) && count_steps(L)) allocate(L);
    if (L->failed) L->steps = L->own = 0;
}

void tp_loader_free(tp_loader *L)
{
    if (!L || L == &no_memory) return;
    const tp_loader_kind *k = L->kind;
    tp__ring_free(L->ring);
    for (int i = 0; L->slot && k->slot_free && i < L->o.ahead; i++)
        if (L->slot[i].of_kind) k->slot_free(L->state, L->slot[i].of_kind);
    for (int i = 0; L->work && k->work_free && i <= L->o.threads; i++)
        k->work_free(L->work + (size_t)i * aligned(k->work + 1));
    for (block *b = L->memory, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(L->note);
    pthread_mutex_destroy(&L->lock);
    free(L);
}

/* ---- bad examples ---- */

bool tp_loader_is_bad(tp_loader *L, int64_t number)
{
    if (!L || L->skipped == 0) return false;
    pthread_mutex_lock(&L->lock);
    const bool bad = L->known[number] & BAD;
    pthread_mutex_unlock(&L->lock);
    return bad;
}

/* Notes a message about an example, once. Without memory for the text it is lost. */
static void add_note(tp_loader *L, int64_t number, uint8_t what, const char *why)
{
    pthread_mutex_lock(&L->lock);
    if (!L->known) L->known = new_block(L, (size_t)L->X.count);
    const bool known = L->known != NULL;
    if (known && !(L->known[number] & what)) {
        L->known[number] |= what;
        L->skipped += what == BAD;
        if (tp_reserve(&L->note, &L->notes_room, L->notes, 1, sizeof *L->note)) {
            note *n = &L->note[L->notes++];
            n->number = number;
            snprintf(n->why, sizeof n->why, "%s", why);
        }
    }
    pthread_mutex_unlock(&L->lock);
    if (!known) no_room(L);
}

/* Passes the messages noted since the last call to the caller. */
static void report(tp_loader *L)
{
    char name[512];
    pthread_mutex_lock(&L->lock);
    note *all = L->note;
    const size_t n = L->notes;
    L->note = NULL;
    L->notes = L->notes_room = 0;
    pthread_mutex_unlock(&L->lock);
    for (size_t i = 0; L->o.bad && i < n; i++)
        L->o.bad(L->o.env, name_of(L, all[i].number, name, sizeof name), all[i].why);
    free(all);
}

/* ---- work of the workers ---- */

/* Tries to make an example. False: another one may replace it. */
static bool try_example(tp_loader *L, const tp_loader_example *e, const slot *s, void *work)
{
    char why[TP_EXAMPLE_WHY] = "";
    if (tp_loader_is_bad(L, e->number)) {
        if (L->o.train && L->o.strict) fail_at(L, e->number, TP_E_IO, "it is missing");
        return false;
    }
    const tp_example_state made = L->kind->make(L->state, e, s->of_kind, work, why);
    if (made == TP_EXAMPLE_MADE) {
        if (why[0]) add_note(L, e->number, TOLD, why);
        return true;
    }
    if (made == TP_EXAMPLE_BAD) add_note(L, e->number, BAD, why);
    if (made != TP_EXAMPLE_BAD || L->o.strict)
        fail_at(L, e->number, made == TP_EXAMPLE_NO_MEMORY ? TP_E_MEMORY : TP_E_IO, why);
    return false;
}

/* Makes example `at` of a batch. In training, the next example replaces a bad one; of a sampler's
 * order the next one of the batch, since it may exclude the next number. */
static void work_piece(void *env, int of, int64_t at, int worker)
{
    tp_loader *L = env;
    const slot *s = &L->slot[of];
    void *work = L->work + (size_t)worker * aligned(L->kind->work + 1);
    const int64_t tries = L->o.train && !L->o.strict ? L->X.tries : 1, first = s->index[at];
    if (!L->kind->make) return;
    tp_loader_example e = { .seed = L->o.seed,
                            .epoch = s->b.epoch,
                            .step = s->b.step,
                            .place = s->b.place + L->from + at,
                            .at = at };
    for (int64_t k = 0; k < tries && !L->failed; k++) {
        e.number =
            L->o.sampler ? s->all[(L->from + at + k) % s->b.total] : (first + k) % L->X.count;
        if (!try_example(L, &e, s, work)) continue;
        s->index[at] = e.number;
        s->left_out[at] = false;
        return;
    }
    /* otherwise training would search for an example forever */
    if (L->o.train && L->skipped == L->X.count)
        tp_loader_fail(L, TP_E_IO, "none of the %lld %s could be read", (long long)L->X.count,
                       L->kind->name);
}

/* Closes the gaps of left-out examples and completes the batch. */
static void finish_batch(void *env, int of)
{
    tp_loader *L = env;
    slot *s = &L->slot[of];
    int64_t n = 0;
    for (int64_t i = 0; L->kind->make && i < s->b.n; i++) {
        if (s->left_out[i]) continue;
        if (n < i) {
            s->index[n] = s->index[i];
            L->kind->move(L->state, s->of_kind, n, i);
        }
        n++;
    }
    if (L->kind->make) s->b.n = n;
    if (s->b.n > 0 && !L->failed) L->kind->finish(L, L->state, &s->b, s->of_kind);
}

/* ---- the examples of a batch ---- */

static bool sample(tp_loader *L, int64_t epoch, tp_random *r)
{
    const tp_example_sampler *p = L->o.sampler;
    const tp_epoch s = { L->X.count, L->X.length, epoch, L->o.train };
    const char *why = p->order(p->env, &s, r, L->order);
    if (why) return tp_loader_fail(L, TP_E_VALUE, "sampler of %s: %s", L->kind->name, why);
    for (int64_t i = 0; i < s.length; i++)
        if (L->order[i] < 0 || L->order[i] >= s.count)
            return tp_loader_fail(L, TP_E_VALUE,
                                  "sampler of %s: its order has the number %lld at place %lld; "
                                  "there are %lld",
                                  L->kind->name, (long long)L->order[i], (long long)i,
                                  (long long)s.count);
    if (L->kind->arrange) L->kind->arrange(L->state, L->order, s.length);
    return true;
}

static void shuffle(tp_loader *L, int64_t epoch, tp_random *r)
{
    const tp_loader_kind *k = L->kind;
    for (int64_t i = 0; i < L->X.count; i++) L->order[i] = i;
    if (L->o.train) {
        *r = tp_random_stream(L->o.seed, k->stream, 0, (uint64_t)epoch);
        tp__order_shuffle(L->order, L->X.count, k->shuffle, r);
    }
    if (k->arrange) k->arrange(L->state, L->order, L->X.count);
}

/* Arranges the order of an epoch; outside training, without a sampler, that of all epochs. */
static bool arrange(tp_loader *L, int64_t epoch)
{
    const tp_loader_kind *k = L->kind;
    const int64_t used = L->steps * L->global;
    const tp_order_runs by = { L->global, L->o.bucket, k->length, L->state };
    const bool lasts = !L->o.train && !L->o.sampler;
    if (k->number || L->order_of == epoch || (L->order_of >= 0 && lasts)) return true;
    tp_random r = tp_random_stream(L->o.seed, "sampler", 0, (uint64_t)epoch);
    if (!L->o.sampler)
        shuffle(L, epoch, &r);
    else if (!sample(L, epoch, &r))
        return false;
    if (L->o.bucket > 1 && k->length &&
        !tp__order_sort(L->order, used < L->X.length ? used : L->X.length, &by,
                        L->o.train ? &r : NULL))
        return no_room(L);
    L->order_of = epoch;
    return true;
}

/* Adds the next batch to the ring. False: no more, or L has failed. */
static bool add_batch(tp_loader *L, int at)
{
    slot *s = &L->slot[at];
    const int64_t B = L->o.batch, from = L->from;
    if (L->added.step >= L->own) {
        if (!L->o.train || L->added.epoch >= LAST_EPOCH) return false;
        L->added = (place){ .epoch = L->added.epoch + 1 };
    }
    if (!arrange(L, L->added.epoch)) return false;
    const int64_t first = L->added.step * L->global, left = L->X.length - first;
    s->b.total = left < L->global ? left : L->global;
    s->b.n = s->b.total - from < B ? s->b.total - from : B;
    s->b.epoch = L->added.epoch;
    s->b.step = L->added.step++;
    s->b.place = first;
    for (int64_t i = 0; i < s->b.total; i++)
        s->all[i] = L->kind->number ? L->kind->number(L->state, s->b.epoch, first + i)
                                    : L->order[first + i];
    for (int64_t i = 0; i < s->b.n; i++) {
        s->index[i] = s->all[from + i];
        s->left_out[i] = true;
    }
    tp__ring_add(L->ring, L->kind->make ? s->b.n : 1);
    return true;
}

/* ---- batches ---- */

void tp_loader_seek(tp_loader *L, int64_t epoch, int64_t step)
{
    if (!L || L->failed || !L->ring) return;
    L->fed.step = -1;
    if (epoch == L->next.epoch && step == L->next.step) return;
    tp__ring_clear(L->ring);
    L->next.epoch = epoch < 0 ? 0 : epoch > LAST_EPOCH ? LAST_EPOCH : epoch;
    L->next.step = step < 0 ? 0 : step > L->steps ? L->steps : step;
    L->added = L->next;
}

/* Waits for the next batch that is not empty: bad examples may leave none. NULL: the end, or L has
 * failed, which it does in training if a whole epoch has none. */
static const slot *next_slot(tp_loader *L)
{
    const slot *s = NULL;
    int64_t empty = 0; /* batches of the epoch */
    do {
        tp__ring_release(L->ring);
        for (int at; (at = tp__ring_vacant(L->ring)) >= 0 && add_batch(L, at);) {
        }
        const double begin = tp_seconds();
        const int at = tp__ring_take(L->ring);
        L->waited += tp_seconds() - begin;
        s = at < 0 ? NULL : &L->slot[at];
        if (s) empty = s->b.n > 0 ? 0 : s->b.step > 0 ? empty + 1 : 1;
        if (s && L->o.train && empty == L->own)
            tp_loader_fail(L, TP_E_IO, "none of the %s of epoch %lld could be read", L->kind->name,
                           (long long)s->b.epoch);
    } while (s && !L->failed && s->b.n == 0);
    return L->failed ? NULL : s;
}

static const slot *take(tp_loader *L)
{
    if (!L || L->failed || !L->ring) return NULL;
    L->fed.step = -1;
    const slot *s = next_slot(L);
    report(L);
    if (!s) return NULL;
    const bool last = L->o.train && s->b.step + 1 == L->steps;
    L->next.epoch = s->b.epoch + last;
    L->next.step = last ? 0 : s->b.step + 1;
    return s;
}

/* Takes that batch or, in the middle of a pass, the next one: where a batch of bad examples was
 * passed over, the one after it must not be fed twice. */
static const slot *take_at(tp_loader *L, place at)
{
    const bool goes_on =
        !L->o.train && L->fed.step >= 0 && at.epoch == L->fed.epoch && at.step == L->fed.step + 1;
    if (!goes_on) tp_loader_seek(L, at.epoch, at.step);
    const slot *s = take(L);
    if (!L->failed) L->fed = at;
    return s;
}

bool tp_loader_take(tp_loader *L, const tp_loader_kind *kind, void *batch, size_t bytes)
{
    if (!L || !batch) return false;
    memset(batch, 0, bytes);
    if (L->kind && L->kind != kind)
        return tp_loader_fail(L, TP_E_STATE, "a batch of %s was asked for from a loader of %s",
                              kind->name, L->kind->name);
    const slot *s = take(L);
    if (s) memcpy(batch, s->of_kind, bytes);
    return s != NULL;
}

int64_t tp_loader_feed(tp_loader *L, tp_tape *T, int64_t epoch, int64_t step, tp_tensor to[])
{
    if (!L) {
        tp_raise_here(T, TP_E_STATE, "loader_feed: NULL was given in place of a loader");
        return 0;
    }
    if (!L->failed && !L->kind->feed) {
        tp_raise_here(T, TP_E_STATE, "loader_feed: batches of %s are not fed as a whole",
                      L->kind->name);
        return 0;
    }
    const slot *s = take_at(L, (place){ epoch, step });
    if (L->failed) tp_raise(T, L->code, "%s", L->why);
    if (!s || !tp_ok(T)) return 0;
    L->kind->feed(L->state, s->of_kind, T, to);
    return tp_ok(T) ? s->b.n : 0;
}

/* ---- queries ---- */

bool tp_loader_ok(const tp_loader *L)
{
    return L && !L->failed;
}

tp_code tp_loader_code(const tp_loader *L)
{
    if (!L) return TP_E_STATE;
    return L->failed ? L->code : TP_OK;
}

const char *tp_loader_why(const tp_loader *L)
{
    if (!L) return "loader: NULL was given in place of a loader";
    return L->failed ? L->why : "";
}

int64_t tp_loader_steps(const tp_loader *L)
{
    return L ? L->steps : 0;
}

double tp_loader_waited(const tp_loader *L)
{
    return L ? L->waited : 0;
}

int64_t tp_loader_skipped(const tp_loader *L)
{
    return L ? L->skipped : 0;
}
