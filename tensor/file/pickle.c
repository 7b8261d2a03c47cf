/* pickle.c - the instructions of the pickle machine, and access to its values. */
#include "tensor/file/pickle_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MEMO = 1 << 22 };

static tp_pickle no_memory = { .err = { TP_E_MEMORY, "out of memory for the pickle", NULL } };

/* ---- numbers and containers ---- */

static void push_container(tp_pickle *p, tp_pickle_kind kind, size_t n)
{
    tp_pickle_value *v = tp__pickle_new_value(p, kind);
    if (n > p->stack.n - tp__pickle_floor_of(p))
        tp__pickle_fail(p, "an instruction of the pickle has too few operands");
    tp__pickle_gather(p, v, n);
    tp__pickle_push(p, v);
}

static void push_whole(tp_pickle *p, tp_pickle_kind kind, int64_t x)
{
    tp_pickle_value *v = tp__pickle_new_value(p, kind);
    if (v) v->whole = x;
    tp__pickle_push(p, v);
}

static void push_real(tp_pickle *p)
{
    tp_pickle_value *v = tp__pickle_new_value(p, TP_PICKLE_FLOAT);
    unsigned char b[8];
    uint64_t bits = 0;
    tp__pickle_take(p, b, sizeof b);
    for (int i = 0; i < 8; i++) bits = bits << 8 | b[i]; /* the only big-endian number */
    if (v) memcpy(&v->real, &bits, sizeof bits);
    tp__pickle_push(p, v);
}

/* Pushes a two's complement integer of n bytes; above 8 bytes it becomes a TEXT. */
static void push_long(tp_pickle *p, uint64_t n)
{
    if (n > 8) {
        tp__pickle_push(p, tp__pickle_new_text(p, TP_PICKLE_TEXT, n));
        return;
    }
    const uint64_t x = tp__pickle_number(p, (size_t)n);
    const unsigned unused = (unsigned)(64 - 8 * n);
    push_whole(p, TP_PICKLE_INT, n ? (int64_t)(x << unused) >> unused : 0);
}

/* ---- classes and calls ---- */

static void push_name(tp_pickle *p, const char *module, const char *name)
{
    const size_t size = strlen(module) + 1 + strlen(name);
    tp_pickle_value *v = tp__pickle_new_value(p, TP_PICKLE_NAME);
    char *text = v ? tp__pickle_allocate(p, size + 1) : NULL;
    if (!text) return;
    snprintf(text, size + 1, "%s.%s", module, name);
    v->text = text;
    v->size = size;
    if (!p->allows(text))
        tp__err(&p->err, TP_E_IO,
                "asks for '%.200s', which tensors do not need: the file is refused, and nothing in "
                "it was run; save the state dict alone, torch.save(model.state_dict(), PATH)",
                text);
    tp__pickle_push(p, v);
}

enum { LINE = 256 };

static void take_line(tp_pickle *p, char *line)
{
    size_t n = 0;
    for (; tp__pickle_ok(p) && n < LINE; n++) {
        tp__pickle_take(p, &line[n], 1);
        if (line[n] == '\n') break;
    }
    if (n == LINE) tp__pickle_fail(p, "a name of the pickle is too long");
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
    const tp_pickle_value *name = tp__pickle_pop(p), *module = tp__pickle_pop(p);
    if (!tp__pickle_ok(p)) return;
    if (name->kind == TP_PICKLE_TEXT && module->kind == TP_PICKLE_TEXT)
        push_name(p, module->text, name->text);
    else
        tp__pickle_fail(p, "a class of the pickle has no name");
}

static void call(tp_pickle *p)
{
    tp_pickle_value *args = tp__pickle_pop(p);
    const tp_pickle_value *callee = tp__pickle_pop(p);
    if (!tp__pickle_ok(p)) return;
    if (callee->kind != TP_PICKLE_NAME || args->kind != TP_PICKLE_TUPLE) {
        tp__pickle_fail(p, "a call in the pickle lacks its function or arguments");
        return;
    }
    tp_pickle_value *v = tp__pickle_new_value(p, TP_PICKLE_CALL);
    if (!v) return;
    v->callee = callee;
    v->args = args;
    tp__pickle_push(p, v);
}

static void call_with_keywords(tp_pickle *p)
{
    const tp_pickle_value *keywords = tp__pickle_pop(p);
    if (keywords->kind != TP_PICKLE_DICT || keywords->n != 0)
        tp__pickle_fail(
            p, "an object of the pickle is constructed with keywords, which tensors do not need");
    call(p);
}

static void set_state(tp_pickle *p)
{
    const tp_pickle_value *state = tp__pickle_pop(p);
    tp_pickle_value *v = tp__pickle_top(p);
    if (!tp__pickle_ok(p)) return;
    if (v->kind == TP_PICKLE_CALL)
        v->state = state;
    else if (v->kind != TP_PICKLE_DICT)
        tp__pickle_fail(p, "a state of the pickle has no object");
}

static void persistent(tp_pickle *p)
{
    tp_pickle_value *args = tp__pickle_pop(p), *v = tp__pickle_new_value(p, TP_PICKLE_ID);
    if (v) v->args = args;
    tp__pickle_push_to(p, &p->ids, v);
    tp__pickle_push(p, v);
}

/* ---- containers ---- */

/* Moves the values above the mark, or the n topmost values, into the container below them. */
static void append(tp_pickle *p, tp_pickle_kind kind, bool marked, size_t n)
{
    if (marked) n = p->stack.n - tp__pickle_pop_mark(p);
    if (!tp__pickle_ok(p)) return;
    if (n >= p->stack.n - tp__pickle_floor_of(p)) {
        tp__pickle_fail(p, "items of the pickle have no container");
        return;
    }
    tp_pickle_value *to = p->stack.at[p->stack.n - n - 1];
    const bool items = kind == TP_PICKLE_DICT;
    if ((to->kind != kind && !(items && to->kind == TP_PICKLE_CALL)) || (items && n % 2 != 0)) {
        tp__pickle_fail(p, "items of the pickle do not fit their container");
        return;
    }
    tp__pickle_gather(p, to, n);
}

static void container_of_mark(tp_pickle *p, tp_pickle_kind kind)
{
    const size_t n = p->stack.n - tp__pickle_pop_mark(p);
    if (kind == TP_PICKLE_DICT && n % 2 != 0)
        tp__pickle_fail(p, "a dictionary of the pickle lacks a value");
    push_container(p, kind, n);
}

static void mark(tp_pickle *p)
{
    tp_pickle_value *v = tp__pickle_new_value(p, TP_PICKLE_INT);
    if (v) v->whole = (int64_t)p->stack.n;
    tp__pickle_push_to(p, &p->marks, v);
}

static void memoize(tp_pickle *p, uint64_t i)
{
    tp_pickle_value *v = tp__pickle_top(p);
    if (!tp__pickle_ok(p)) return;
    if (i >= MOST_MEMO || i > 2 * (uint64_t)p->memo.n + 1024) {
        tp__pickle_fail(p, "a value of the pickle is remembered at a place far from the others");
        return;
    }
    while (tp__pickle_ok(p) && p->memo.n <= i) tp__pickle_push_to(p, &p->memo, &p->none);
    if (!tp__pickle_ok(p)) return;
    p->memo.at[i] = v;
}

static void recall(tp_pickle *p, uint64_t i)
{
    if (i < p->memo.n && p->memo.at[i] != &p->none)
        tp__pickle_push(p, p->memo.at[i]);
    else
        tp__pickle_fail(p, "a value of the pickle is used before it is made");
}

/* ---- instructions ---- */

/* Runs an instruction for a text, number or constant. False: op is another instruction. */
static bool run_atom(tp_pickle *p, unsigned char op)
{
    switch (op) {
    case 'N': tp__pickle_push(p, tp__pickle_new_value(p, TP_PICKLE_NONE)); break;
    case 0x88: push_whole(p, TP_PICKLE_BOOL, 1); break;
    case 0x89: push_whole(p, TP_PICKLE_BOOL, 0); break;
    case 'J': push_long(p, 4); break;
    case 'K': push_whole(p, TP_PICKLE_INT, (int64_t)tp__pickle_number(p, 1)); break;
    case 'M': push_whole(p, TP_PICKLE_INT, (int64_t)tp__pickle_number(p, 2)); break;
    case 0x8a: push_long(p, tp__pickle_number(p, 1)); break;
    case 0x8b: push_long(p, tp__pickle_number(p, 4)); break;
    case 'G': push_real(p); break;
    case 'U':
    case 'C':
    case 0x8c:
        tp__pickle_push(p, tp__pickle_new_text(p, TP_PICKLE_TEXT, tp__pickle_number(p, 1)));
        break;
    case 'T':
    case 'B':
    case 'X':
        tp__pickle_push(p, tp__pickle_new_text(p, TP_PICKLE_TEXT, tp__pickle_number(p, 4)));
        break;
    case 0x8d:
    case 0x8e:
        tp__pickle_push(p, tp__pickle_new_text(p, TP_PICKLE_TEXT, tp__pickle_number(p, 8)));
        break;
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
        if (tp__pickle_number(p, 1) > 5) tp__pickle_fail(p, "the pickle has a protocol above 5");
        break;
    case 0x95: tp__pickle_number(p, 8); break; /* FRAME: how much to buffer */
    case '.': p->stopped = true; break;
    case '0': tp__pickle_pop(p); break;
    case '1': p->stack.n = tp__pickle_pop_mark(p); break;
    case '2': tp__pickle_push(p, tp__pickle_top(p)); break;
    case 'q': memoize(p, tp__pickle_number(p, 1)); break;
    case 'r': memoize(p, tp__pickle_number(p, 4)); break;
    case 0x94: memoize(p, p->memo.n); break;
    case 'h': recall(p, tp__pickle_number(p, 1)); break;
    case 'j': recall(p, tp__pickle_number(p, 4)); break;
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
    if (!tp__pickle_ok(p)) return NULL;
    p->stack.n = p->marks.n = p->memo.n = 0;
    p->stopped = false;
    while (tp__pickle_ok(p) && !p->stopped) {
        const unsigned char op = (unsigned char)tp__pickle_number(p, 1);
        if (!tp__pickle_ok(p) || run_atom(p, op) || run_container(p, op) || run_machine(p, op))
            continue;
        tp__err(
            &p->err, TP_E_IO,
            "byte 0x%02x at offset %zu is no instruction of a pickle of tensors" TP_PICKLE_DAMAGED,
            op, tp__pickle_offset(p) - 1);
    }
    const tp_pickle_value *v = tp__pickle_pop(p); /* fails if there is none */
    return tp__pickle_ok(p) ? v : NULL;
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
