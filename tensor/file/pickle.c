/* pickle.c - the pickle machine: input, arena, stack, instructions, and access to its values.
 *
 * Values and lists are allocated in one arena of limited size. A pickle of a few bytes cannot ask
 * for much more than a multiple of its own length. After an error all functions do nothing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/file.h>

#include "tensor/file/pickle.h"

#define DAMAGED "; the file is damaged: copy or download it again"

enum { BUFFER = 1 << 14 };

typedef struct tp_pickle_chunk tp_pickle_chunk;
struct tp_pickle_chunk {
    tp_pickle_chunk *next;
    size_t used, room;
    _Alignas(16) unsigned char bytes[];
};

typedef struct tp_pickle_stack {
    tp_pickle_value **at;
    size_t n, room;
} tp_pickle_stack;

struct tp_pickle {
    tp_err err;
    int fd;
    size_t at, end;     /* in the file: the next byte to buffer, the end of the pickles */
    size_t first, last; /* the unused part of the buffer */
    unsigned char buffer[BUFFER];
    bool (*allows)(const char *name);
    tp_pickle_chunk *chunks;
    size_t bytes, values;
    tp_pickle_stack stack, marks, memo; /* marks: stack positions, in `whole`; memo: by index */
    tp_pickle_stack ids;
    tp_pickle_value none; /* popped if an operand is missing */
    bool stopped;
};

/* Checkpoints with optimiser state have about 100 000 values. */
enum {
    CHUNK = 1 << 16,
    MOST_BYTES = 1 << 28, /* size of the arena */
    MOST_VALUES = 1 << 22,
};

/* "TEXT, at offset N; the file is damaged ...". */
static void fail(tp_pickle *p, const char *text)
{
    tp__err(&p->err, TP_E_IO, "%s, at offset %zu" DAMAGED, text, tp__pickle_offset(p));
}

static bool ok(const tp_pickle *p)
{
    return p->err.code == TP_OK;
}

/* ---- input ---- */

size_t tp__pickle_offset(const tp_pickle *p)
{
    return p->at - (p->last - p->first);
}

/* Reads the next n bytes; zeros after an error. */
static void take(tp_pickle *p, void *to, size_t n)
{
    unsigned char *out = to;
    memset(out, 0, n);
    while (n > 0 && ok(p)) {
        if (p->first == p->last) {
            const size_t want = p->end - p->at < BUFFER ? p->end - p->at : BUFFER;
            const size_t got = tp_read_bytes(p->fd, (int64_t)p->at, p->buffer, want);
            p->first = 0;
            p->last = got;
            p->at += got;
            if (want == 0)
                fail(p, "the pickle ends in the middle");
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

/* Reads a little-endian number of at most 8 bytes; 0 after an error. */
static uint64_t number(tp_pickle *p, size_t n)
{
    uint64_t x = 0;
    take(p, &x, n);
    return x;
}

/* ---- values ---- */

/* Memory that lives as long as the machine. NULL after an error. */
static void *allocate(tp_pickle *p, size_t n)
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

static tp_pickle_value *new_value(tp_pickle *p, tp_pickle_kind kind)
{
    tp_pickle_value *v = p->values < MOST_VALUES ? allocate(p, sizeof *v) : NULL;
    if (p->values++ == MOST_VALUES)
        tp__err(&p->err, TP_E_IO,
                "the pickle has more than %d values, more than a list of tensors has", MOST_VALUES);
    if (v) *v = (tp_pickle_value){ .kind = kind };
    return v;
}

/* Makes room for n more pointers. The old array stays in the arena, at most doubling the cost. */
static bool reserve(tp_pickle *p, tp_pickle_value ***at, size_t used, size_t *room, size_t n)
{
    if (n <= *room - used) return true;
    const size_t more = used + n > 2 * *room ? used + n : 2 * *room;
    tp_pickle_value **place = allocate(p, (more < 4 ? 4 : more) * sizeof *place);
    if (!place) return false;
    if (used) memcpy(place, *at, used * sizeof *place);
    *at = place;
    *room = more < 4 ? 4 : more;
    return true;
}

static void push_to(tp_pickle *p, tp_pickle_stack *s, tp_pickle_value *v)
{
    if (ok(p) && v && reserve(p, &s->at, s->n, &s->room, 1)) s->at[s->n++] = v;
}

/* Pushes a value unless it is NULL. */
static void push(tp_pickle *p, tp_pickle_value *v)
{
    push_to(p, &p->stack, v);
}

/* The last mark's stack position; 0: there is none. */
static size_t floor_of(const tp_pickle *p)
{
    return p->marks.n ? (size_t)p->marks.at[p->marks.n - 1]->whole : 0;
}

/* Never NULL: after an error it returns a value not used elsewhere. */
static tp_pickle_value *pop(tp_pickle *p)
{
    if (p->stack.n > floor_of(p)) return p->stack.at[--p->stack.n];
    fail(p, "an instruction of the pickle has no operand");
    p->none = (tp_pickle_value){ .kind = TP_PICKLE_NONE };
    return &p->none;
}

static tp_pickle_value *top(tp_pickle *p)
{
    tp_pickle_value *v = pop(p);
    if (ok(p)) p->stack.n++;
    return v;
}

/* Removes the last mark and returns its position on the stack; the operands are above it. */
static size_t pop_mark(tp_pickle *p)
{
    if (p->marks.n == 0) {
        fail(p, "an instruction of the pickle lacks its mark");
        return p->stack.n;
    }
    return (size_t)p->marks.at[--p->marks.n]->whole;
}

/* Moves the n topmost values to the end of a container. */
static void gather(tp_pickle *p, tp_pickle_value *to, size_t n)
{
    if (!ok(p) || !to || !reserve(p, &to->at, to->n, &to->room, n)) return;
    p->stack.n -= n;
    if (n) memcpy(to->at + to->n, p->stack.at + p->stack.n, n * sizeof *to->at);
    to->n += n;
}

static tp_pickle_value *new_text(tp_pickle *p, tp_pickle_kind kind, uint64_t size)
{
    if (size > p->end - tp__pickle_offset(p)) {
        fail(p, "a text of the pickle is longer than the file");
        return NULL;
    }
    tp_pickle_value *v = new_value(p, kind);
    char *text = v ? allocate(p, (size_t)size + 1) : NULL;
    if (!text) return NULL;
    take(p, text, (size_t)size);
    text[size] = 0;
    v->text = text;
    v->size = (size_t)size;
    return v;
}

/* ---- instructions ---- */

enum { MOST_MEMO = 1 << 22 };

static tp_pickle no_memory = { .err = { TP_E_MEMORY, "out of memory for the pickle", NULL } };

/* ---- numbers and containers ---- */

static void push_container(tp_pickle *p, tp_pickle_kind kind, size_t n)
{
    tp_pickle_value *v = new_value(p, kind);
    if (n > p->stack.n - floor_of(p)) fail(p, "an instruction of the pickle has too few operands");
    gather(p, v, n);
    push(p, v);
}

static void push_whole(tp_pickle *p, tp_pickle_kind kind, int64_t x)
{
    tp_pickle_value *v = new_value(p, kind);
    if (v) v->whole = x;
    push(p, v);
}

static void push_real(tp_pickle *p)
{
    tp_pickle_value *v = new_value(p, TP_PICKLE_FLOAT);
    unsigned char b[8];
    uint64_t bits = 0;
    take(p, b, sizeof b);
    for (int i = 0; i < 8; i++) bits = bits << 8 | b[i]; /* the only big-endian number */
    if (v) memcpy(&v->real, &bits, sizeof bits);
    push(p, v);
}

/* Pushes a two's complement integer of n bytes; above 8 bytes it becomes a TEXT. */
static void push_long(tp_pickle *p, uint64_t n)
{
    if (n > 8) {
        push(p, new_text(p, TP_PICKLE_TEXT, n));
        return;
    }
    const uint64_t x = number(p, (size_t)n);
    const unsigned unused = (unsigned)(64 - 8 * n);
    push_whole(p, TP_PICKLE_INT, n ? (int64_t)(x << unused) >> unused : 0);
}

/* ---- classes and calls ---- */

static void push_name(tp_pickle *p, const char *module, const char *name)
{
    const size_t size = strlen(module) + 1 + strlen(name);
    tp_pickle_value *v = new_value(p, TP_PICKLE_NAME);
    char *text = v ? allocate(p, size + 1) : NULL;
    if (!text) return;
    snprintf(text, size + 1, "%s.%s", module, name);
    v->text = text;
    v->size = size;
    if (!p->allows(text))
        tp__err(&p->err, TP_E_IO,
                "asks for '%.200s', which tensors do not need: the file is refused, and nothing in "
                "it was run; save the state dict alone, torch.save(model.state_dict(), PATH)",
                text);
    push(p, v);
}

enum { LINE = 256 };

static void take_line(tp_pickle *p, char *line)
{
    size_t n = 0;
    for (; ok(p) && n < LINE; n++) {
        take(p, &line[n], 1);
        if (line[n] == '\n') break;
    }
    if (n == LINE) fail(p, "a name of the pickle is too long");
    line[n < LINE ? n : LINE - 1] = 0;
}

static void name_of_lines(tp_pickle *p)
{
    char module[LINE], name[LINE];
    take_line(p, module);
    take_line(p, name);
    push_name(p, module, name);
}

static void name_of_stack(tp_pickle *p)
{
    const tp_pickle_value *name = pop(p), *module = pop(p);
    if (!ok(p)) return;
    if (name->kind == TP_PICKLE_TEXT && module->kind == TP_PICKLE_TEXT)
        push_name(p, module->text, name->text);
    else
        fail(p, "a class of the pickle has no name");
}

static void call(tp_pickle *p)
{
    tp_pickle_value *args = pop(p);
    const tp_pickle_value *callee = pop(p);
    if (!ok(p)) return;
    if (callee->kind != TP_PICKLE_NAME || args->kind != TP_PICKLE_TUPLE) {
        fail(p, "a call in the pickle lacks its function or arguments");
        return;
    }
    tp_pickle_value *v = new_value(p, TP_PICKLE_CALL);
    if (!v) return;
    v->callee = callee;
    v->args = args;
    push(p, v);
}

static void call_with_keywords(tp_pickle *p)
{
    const tp_pickle_value *keywords = pop(p);
    if (keywords->kind != TP_PICKLE_DICT || keywords->n != 0)
        fail(p, "an object of the pickle is constructed with keywords, which tensors do not need");
    call(p);
}

static void set_state(tp_pickle *p)
{
    const tp_pickle_value *state = pop(p);
    tp_pickle_value *v = top(p);
    if (!ok(p)) return;
    if (v->kind == TP_PICKLE_CALL)
        v->state = state;
    else if (v->kind != TP_PICKLE_DICT)
        fail(p, "a state of the pickle has no object");
}

static void persistent(tp_pickle *p)
{
    tp_pickle_value *args = pop(p), *v = new_value(p, TP_PICKLE_ID);
    if (v) v->args = args;
    push_to(p, &p->ids, v);
    push(p, v);
}

/* ---- containers ---- */

/* Moves the values above the mark, or the n topmost values, into the container below them. */
static void append(tp_pickle *p, tp_pickle_kind kind, bool marked, size_t n)
{
    if (marked) n = p->stack.n - pop_mark(p);
    if (!ok(p)) return;
    if (n >= p->stack.n - floor_of(p)) {
        fail(p, "items of the pickle have no container");
        return;
    }
    tp_pickle_value *to = p->stack.at[p->stack.n - n - 1];
    const bool items = kind == TP_PICKLE_DICT;
    if ((to->kind != kind && !(items && to->kind == TP_PICKLE_CALL)) || (items && n % 2 != 0)) {
        fail(p, "items of the pickle do not fit their container");
        return;
    }
    gather(p, to, n);
}

static void container_of_mark(tp_pickle *p, tp_pickle_kind kind)
{
    const size_t n = p->stack.n - pop_mark(p);
    if (kind == TP_PICKLE_DICT && n % 2 != 0) fail(p, "a dictionary of the pickle lacks a value");
    push_container(p, kind, n);
}

static void mark(tp_pickle *p)
{
    tp_pickle_value *v = new_value(p, TP_PICKLE_INT);
    if (v) v->whole = (int64_t)p->stack.n;
    push_to(p, &p->marks, v);
}

static void memoize(tp_pickle *p, uint64_t i)
{
    tp_pickle_value *v = top(p);
    if (!ok(p)) return;
    if (i >= MOST_MEMO || i > 2 * (uint64_t)p->memo.n + 1024) {
        fail(p, "a value of the pickle is remembered at a place far from the others");
        return;
    }
    while (ok(p) && p->memo.n <= i) push_to(p, &p->memo, &p->none);
    if (!ok(p)) return;
    p->memo.at[i] = v;
}

static void recall(tp_pickle *p, uint64_t i)
{
    if (i < p->memo.n && p->memo.at[i] != &p->none)
        push(p, p->memo.at[i]);
    else
        fail(p, "a value of the pickle is used before it is made");
}

/* ---- instructions ---- */

/* Runs an instruction for a text, number or constant. False: op is something else. */
static bool run_atom(tp_pickle *p, unsigned char op)
{
    switch (op) {
    case 'N': push(p, new_value(p, TP_PICKLE_NONE)); break;
    case 0x88: push_whole(p, TP_PICKLE_BOOL, 1); break;
    case 0x89: push_whole(p, TP_PICKLE_BOOL, 0); break;
    case 'J': push_long(p, 4); break;
    case 'K': push_whole(p, TP_PICKLE_INT, (int64_t)number(p, 1)); break;
    case 'M': push_whole(p, TP_PICKLE_INT, (int64_t)number(p, 2)); break;
    case 0x8a: push_long(p, number(p, 1)); break;
    case 0x8b: push_long(p, number(p, 4)); break;
    case 'G': push_real(p); break;
    case 'U':
    case 'C':
    case 0x8c: push(p, new_text(p, TP_PICKLE_TEXT, number(p, 1))); break;
    case 'T':
    case 'B':
    case 'X': push(p, new_text(p, TP_PICKLE_TEXT, number(p, 4))); break;
    case 0x8d:
    case 0x8e: push(p, new_text(p, TP_PICKLE_TEXT, number(p, 8))); break;
    default: return false;
    }
    return true;
}

static bool run_container(tp_pickle *p, unsigned char op)
{
    switch (op) {
    case '(': mark(p); break;
    case ')': push_container(p, TP_PICKLE_TUPLE, 0); break;
    case ']':
    case 0x8f: push_container(p, TP_PICKLE_LIST, 0); break;
    case '}': push_container(p, TP_PICKLE_DICT, 0); break;
    case 0x85:
    case 0x86:
    case 0x87: push_container(p, TP_PICKLE_TUPLE, op - 0x84u); break;
    case 't': container_of_mark(p, TP_PICKLE_TUPLE); break;
    case 'l':
    case 0x91: container_of_mark(p, TP_PICKLE_LIST); break;
    case 'd': container_of_mark(p, TP_PICKLE_DICT); break;
    case 'a': append(p, TP_PICKLE_LIST, false, 1); break;
    case 'e':
    case 0x90: append(p, TP_PICKLE_LIST, true, 0); break;
    case 's': append(p, TP_PICKLE_DICT, false, 2); break;
    case 'u': append(p, TP_PICKLE_DICT, true, 0); break;
    default: return false;
    }
    return true;
}

static bool run_machine(tp_pickle *p, unsigned char op)
{
    switch (op) {
    case 0x80: /* PROTO */
        if (number(p, 1) > 5) fail(p, "the pickle has a protocol above 5");
        break;
    case 0x95: number(p, 8); break; /* FRAME: how much to buffer */
    case '.': p->stopped = true; break;
    case '0': pop(p); break;
    case '1': p->stack.n = pop_mark(p); break;
    case '2': push(p, top(p)); break;
    case 'q': memoize(p, number(p, 1)); break;
    case 'r': memoize(p, number(p, 4)); break;
    case 0x94: memoize(p, p->memo.n); break;
    case 'h': recall(p, number(p, 1)); break;
    case 'j': recall(p, number(p, 4)); break;
    case 'c': name_of_lines(p); break;
    case 0x93: name_of_stack(p); break;
    case 'R':
    case 0x81: call(p); break;
    case 0x92: call_with_keywords(p); break;
    case 'b': set_state(p); break;
    case 'Q': persistent(p); break;
    default: return false;
    }
    return true;
}

const tp_pickle_value *tp__pickle_next(tp_pickle *p)
{
    if (!ok(p)) return NULL;
    p->stack.n = p->marks.n = p->memo.n = 0;
    p->stopped = false;
    while (ok(p) && !p->stopped) {
        const unsigned char op = (unsigned char)number(p, 1);
        if (!ok(p) || run_atom(p, op) || run_container(p, op) || run_machine(p, op)) continue;
        tp__err(&p->err, TP_E_IO,
                "byte 0x%02x at offset %zu is no instruction of a pickle of tensors" DAMAGED, op,
                tp__pickle_offset(p) - 1);
    }
    const tp_pickle_value *v = pop(p); /* fails if there is none */
    return ok(p) ? v : NULL;
}

/* ---- creation and access ---- */

tp_pickle *tp__pickle_new(int fd, size_t from, size_t to, bool (*allows)(const char *name))
{
    tp_pickle *p = calloc(1, sizeof *p);
    if (!p) return &no_memory;
    p->fd = fd;
    p->at = from;
    p->end = to;
    p->allows = allows;
    return p;
}

void tp__pickle_free(tp_pickle *p)
{
    if (!p || p == &no_memory) return;
    for (tp_pickle_chunk *c = p->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(p);
}

tp_pickle_value *const *tp__pickle_ids(const tp_pickle *p, size_t *n)
{
    *n = p->ids.n;
    return p->ids.at;
}

const tp_err *tp__pickle_error(const tp_pickle *p)
{
    return &p->err;
}

bool tp__pickle_is(const tp_pickle_value *v, tp_pickle_kind kind, const char *text)
{
    return v && v->kind == kind && v->size == strlen(text) && memcmp(v->text, text, v->size) == 0;
}

const tp_pickle_value *tp__pickle_find(const tp_pickle_value *v, const char *key)
{
    if (!v || (v->kind != TP_PICKLE_DICT && v->kind != TP_PICKLE_CALL)) return NULL;
    for (size_t i = 0; i + 1 < v->n; i += 2)
        if (tp__pickle_is(v->at[i], TP_PICKLE_TEXT, key)) return v->at[i + 1];
    return NULL;
}
