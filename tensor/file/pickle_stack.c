/* pickle_stack.c - input, arena and stack of the pickle machine.
 *
 * Values and lists are allocated in one arena of limited size. A pickle of a few bytes cannot ask
 * for much more than a multiple of its own length. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/file.h>

#include "tensor/file/pickle_inner.h"

/* Checkpoints with the state of an optimiser have about 100 000 values. */
enum {
    CHUNK = 1 << 16,
    MOST_BYTES = 1 << 28, /* size of the arena */
    MOST_VALUES = 1 << 22,
};

void tp__pickle_fail(tp_pickle *p, const char *text)
{
    tp__err(&p->err, TP_E_IO, "%s, at offset %zu" TP_PICKLE_DAMAGED, text, tp__pickle_offset(p));
}

bool tp__pickle_ok(const tp_pickle *p)
{
    return p->err.code == TP_OK;
}

/* ---- input ---- */

size_t tp__pickle_offset(const tp_pickle *p)
{
    return p->at - (p->last - p->first);
}

void tp__pickle_take(tp_pickle *p, void *to, size_t n)
{
    unsigned char *out = to;
    memset(out, 0, n);
    while (n > 0 && tp__pickle_ok(p)) {
        if (p->first == p->last) {
            const size_t want =
                p->end - p->at < TP_PICKLE_BUFFER ? p->end - p->at : TP_PICKLE_BUFFER;
            const size_t got = tp_file_bytes(p->fd, (int64_t)p->at, p->buffer, want);
            p->first = 0;
            p->last = got;
            p->at += got;
            if (want == 0)
                tp__pickle_fail(p, "the pickle ends in the middle");
            else if (got == 0)
                tp__err(&p->err, TP_E_IO, "cannot be read at offset %zu (%s)", p->at,
                        errno ? strerror(errno) : "it became shorter");
            continue;
        }
        const size_t some = n < p->last - p->first ? n : p->last - p->first;
        memcpy(out, p->buffer + p->first, some);
        p->first += some;
        out += some;
        n -= some;
    }
}

uint64_t tp__pickle_number(tp_pickle *p, size_t n)
{
    uint64_t x = 0;
    tp__pickle_take(p, &x, n);
    return x;
}

/* ---- values ---- */

void *tp__pickle_allocate(tp_pickle *p, size_t n)
{
    n = (n + 15) / 16 * 16;
    if (p->chunks && n <= p->chunks->room - p->chunks->used) {
        void *place = p->chunks->bytes + p->chunks->used;
        p->chunks->used += n;
        return place;
    }
    const size_t room = n > CHUNK ? n : CHUNK;
    if (room > MOST_BYTES - p->bytes) {
        tp__err(&p->err, TP_E_IO,
                "the pickle needs more than %d MiB of memory, more than a list of tensors does",
                MOST_BYTES >> 20);
        return NULL;
    }
    tp_pickle_chunk *c = calloc(1, sizeof *c + room);
    if (!c) {
        tp__err(&p->err, TP_E_MEMORY, "out of memory for the values of the pickle");
        return NULL;
    }
    *c = (tp_pickle_chunk){ .next = p->chunks, .used = n, .room = room };
    p->chunks = c;
    p->bytes += room;
    return c->bytes;
}

tp_pickle_value *tp__pickle_new_value(tp_pickle *p, tp_pickle_kind kind)
{
    tp_pickle_value *v = p->values < MOST_VALUES ? tp__pickle_allocate(p, sizeof *v) : NULL;
    if (p->values++ == MOST_VALUES)
        tp__err(&p->err, TP_E_IO,
                "the pickle has more than %d values, more than a list of tensors has", MOST_VALUES);
    if (v) *v = (tp_pickle_value){ .kind = kind };
    return v;
}

/* Makes room for n more pointers. The old array stays in the arena, which costs at most as much
 * again. */
static bool reserve(tp_pickle *p, tp_pickle_value ***at, size_t used, size_t *room, size_t n)
{
    if (n <= *room - used) return true;
    const size_t more = used + n > 2 * *room ? used + n : 2 * *room;
    tp_pickle_value **place = tp__pickle_allocate(p, (more < 4 ? 4 : more) * sizeof *place);
    if (!place) return false;
    if (used) memcpy(place, *at, used * sizeof *place);
    *at = place;
    *room = more < 4 ? 4 : more;
    return true;
}

void tp__pickle_push_to(tp_pickle *p, tp_pickle_stack *s, tp_pickle_value *v)
{
    if (tp__pickle_ok(p) && v && reserve(p, &s->at, s->n, &s->room, 1)) s->at[s->n++] = v;
}

void tp__pickle_push(tp_pickle *p, tp_pickle_value *v)
{
    tp__pickle_push_to(p, &p->stack, v);
}

size_t tp__pickle_floor_of(const tp_pickle *p)
{
    return p->marks.n ? (size_t)p->marks.at[p->marks.n - 1]->whole : 0;
}

tp_pickle_value *tp__pickle_pop(tp_pickle *p)
{
    if (p->stack.n > tp__pickle_floor_of(p)) return p->stack.at[--p->stack.n];
    tp__pickle_fail(p, "an instruction of the pickle has no operand");
    p->none = (tp_pickle_value){ .kind = TP_PICKLE_NONE };
    return &p->none;
}

tp_pickle_value *tp__pickle_top(tp_pickle *p)
{
    tp_pickle_value *v = tp__pickle_pop(p);
    if (tp__pickle_ok(p)) p->stack.n++;
    return v;
}

size_t tp__pickle_pop_mark(tp_pickle *p)
{
    if (p->marks.n == 0) {
        tp__pickle_fail(p, "an instruction of the pickle lacks its mark");
        return p->stack.n;
    }
    return (size_t)p->marks.at[--p->marks.n]->whole;
}

void tp__pickle_gather(tp_pickle *p, tp_pickle_value *to, size_t n)
{
    if (!tp__pickle_ok(p) || !to || !reserve(p, &to->at, to->n, &to->room, n)) return;
    p->stack.n -= n;
    if (n) memcpy(to->at + to->n, p->stack.at + p->stack.n, n * sizeof *to->at);
    to->n += n;
}

tp_pickle_value *tp__pickle_new_text(tp_pickle *p, tp_pickle_kind kind, uint64_t size)
{
    if (size > p->end - tp__pickle_offset(p)) {
        tp__pickle_fail(p, "a text of the pickle is longer than the file");
        return NULL;
    }
    tp_pickle_value *v = tp__pickle_new_value(p, kind);
    char *text = v ? tp__pickle_allocate(p, (size_t)size + 1) : NULL;
    if (!text) return NULL;
    tp__pickle_take(p, text, (size_t)size);
    text[size] = 0;
    v->text = text;
    v->size = (size_t)size;
    return v;
}
