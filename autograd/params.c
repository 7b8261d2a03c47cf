/* params.c - named parameters: declaration, ties, freezing, iteration, the state of gradients. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

#include "autograd/nodes.h"
#include "autograd/params.h"
#include "tensor/left.h"
#include "tensor/shape.h"

static tp_params no_memory = {
    .err = { TP_E_MEMORY, "params: out of memory for the object itself", NULL },
    .born_failed = true,
};

static tp_params no_params = {
    .err = { TP_E_STATE, "params: NULL was given in place of a parameter set", NULL },
    .born_failed = true,
};

tp_params *tp__params_some(const tp_params *P)
{
    return P ? (tp_params *)(uintptr_t)P : &no_params;
}

tp_params *tp_params_new(tp_device *D, const tp_params_opts *o)
{
    static const tp_params_opts defaults = { 0 };
    tp_params *P = D && D->left ? tp__left_take(D, sizeof *P) : calloc(1, sizeof *P);
    if (!P) return &no_memory;
    if (!o) o = &defaults;
    tp__device_enter(D);
    tp__lock_init(&P->lock);
    P->err.dev = P->refusal.dev = P->dev = D;
    P->dtype = o->dtype;
    P->seed = o->seed;
    P->blank = o->blank;
    P->version = 1;
    if (!D)
        tp__err(&P->err, TP_E_DEVICE, "params: NULL was given in place of a device");
    else if (D->err.code != TP_OK)
        tp__err(&P->err, D->err.code, "%s", D->err.text);
    else if (o->dtype != TP_F32 && o->dtype != TP_F64)
        tp__err(&P->err, TP_E_DTYPE, "params: dtype must be f32 or f64, not %s",
                tp_dtype_name(o->dtype));
    else if (o->dtype == TP_F64 && D->be->kind != TP_CPU)
        tp__err(&P->err, TP_E_DTYPE, "params: f64 is for the CPU only, not on %s", D->name);
    P->born_failed = P->err.code != TP_OK;
    return P;
}

tp_node *tp__param_node(tp_params *P)
{
    tp_node *n = tp__left_take(P->dev, sizeof *n);
    if (!n) return NULL;
    n->params = P;
    n->rec = TP_NO_REC;
    n->live = true;
    return n;
}

/* Makes handles of n stale, recognisably so until the device closes. */
void tp__param_node_free(tp_params *P, tp_node *n)
{
    if (!n) return;
    tp__buf_unref(n->buf);
    tp__buf_unref(n->grad_buf);
    *n = (tp_node){ .rec = TP_NO_REC };
    tp__left_give(P->dev, n);
}

/* Marks P as freed for stale pointers until it is reused or the device closes. */
static void mark_freed(tp_params *P, tp_device *D)
{
    static const char text[] = "params: tp_params_free has freed these parameters";
    *P = (tp_params){ .err = { TP_E_STATE, "", NULL }, .born_failed = true, .freed = true };
    memcpy(P->err.text, text, sizeof text);
    tp__left_give(D, P);
    tp__device_leave(D);
}

typedef struct tp_room {
    struct tp_room *next;
    max_align_t at[];
} tp_room;

void *tp_params_alloc(tp_params *P, size_t bytes)
{
    if (!tp_params_ok(P)) return NULL;
    tp_room *room = bytes <= SIZE_MAX / 2 ? calloc(1, sizeof *room + bytes) : NULL;
    if (!room) {
        tp__params_no_memory(P);
        return NULL;
    }
    room->next = P->rooms;
    P->rooms = room;
    return room->at;
}

void tp_params_free(tp_params *P)
{
    if (!P || P == &no_memory || P->freed) return;
    for (int i = 0; i < P->n; i++) {
        tp_entry *e = &P->entries[i];
        tp__buf_unref(e->own);
        tp__buf_unref(e->copy);
        free(e->content);
        free(e->name);
        if (!e->alias_of) tp__param_node_free(P, e->node);
    }
    tp__param_node_free(P, P->missing);
    tp__buf_unref(P->values);
    tp__buf_unref(P->shadow);
    tp__buf_unref(P->norm_buf);
    tp__param_node_free(P, P->norm);
    free(P->index.slot);
    free(P->entries);
    for (tp_room *room = P->rooms, *next; room; room = next) {
        next = room->next;
        free(room);
    }
    tp__lock_free(&P->lock);
    if (P->dev && P->dev->left)
        mark_freed(P, P->dev);
    else
        free(P);
}

bool tp__params_live(const tp_params *P, uint64_t id, const char *what, tp_err *e)
{
    if (P->id == id) return true;
    tp__err(e, TP_E_STATE, "%s: tp_params_free has freed the parameters; free them last", what);
    return false;
}

bool tp_params_ok(const tp_params *P)
{
    return tp__params_some(P)->err.code == TP_OK;
}
const char *tp_params_why(const tp_params *P)
{
    P = tp__params_some(P);
    return P->err.code != TP_OK ? P->err.text : P->refusal.text;
}

/* Failed modules leave their prefixes behind. */
void tp_params_clear(tp_params *P)
{
    P = tp__params_some(P);
    if (P->born_failed) return;
    P->err = (tp_err){ .dev = P->dev };
    P->refusal = (tp_err){ .dev = P->dev };
    P->path[0] = '\0';
    P->depth = 0;
}

void tp_params_raise(tp_params *P, tp_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tp__verr(&tp__params_some(P)->err, code == TP_OK ? TP_E_BUG : code, fmt, ap);
    va_end(ap);
}

bool tp_params_refuse(tp_params *P, tp_code code, const char *fmt, ...)
{
    if (!tp__params_begin(P)) return false;
    va_list ap;
    va_start(ap, fmt);
    tp__verr(&P->refusal, code == TP_OK ? TP_E_BUG : code, fmt, ap);
    va_end(ap);
    return false;
}

bool tp__params_begin(tp_params *P)
{
    if (!tp_params_ok(P)) return false;
    if (P->refusal.code != TP_OK) P->refusal = (tp_err){ .dev = P->dev };
    return true;
}

/* ---- names ---- */

void tp__params_no_memory(tp_params *P)
{
    tp__err(&P->err, TP_E_MEMORY, "params: out of host memory");
}

/* Writes path + "." + name to text. False if it does not fit. */
static bool join(const tp_params *P, const char *name, char *text, size_t size)
{
    const char *dot = *P->path && *name ? "." : "";
    return (size_t)snprintf(text, size, "%s%s%s", P->path, dot, name) < size;
}

const char *tp_push(tp_params *P, const char *name)
{
    if (!tp_params_ok(P)) return "";
    char path[sizeof P->path];
    if (!name) {
        tp__err(&P->err, TP_E_VALUE, "tp_push: the name is NULL, below '%.200s'", P->path);
        return "";
    }
    if (P->depth == (int)(sizeof P->marks / sizeof *P->marks) ||
        !join(P, name, path, sizeof path)) {
        tp__err(&P->err, TP_E_VALUE, "tp_push: names nest too deep or too long at '%.200s'",
                P->path);
        return "";
    }
    P->marks[P->depth++] = strlen(P->path);
    memcpy(P->path, path, strlen(path) + 1);
    const char *s = tp__left_text(P->dev, path);
    if (!s) tp__params_no_memory(P);
    return s ? s : "";
}

void tp_pop(tp_params *P)
{
    if (!tp_params_ok(P)) return;
    if (P->depth == 0)
        tp__err(&P->err, TP_E_STATE, "tp_pop: without a matching tp_push");
    else
        P->path[P->marks[--P->depth]] = 0;
}

void tp_params_init_rule(tp_params *P, tp_init_rule rule, void *env)
{
    if (!P) return;
    P->rule = rule;
    P->rule_env = env;
}

/* ---- declaration ---- */

static tp_entry *find(const tp_params *P, const char *name)
{
    const tp_name *s = tp__names_find(&P->index, name);
    return s ? &P->entries[s->value] : NULL;
}

/* Writes a new parameter's full name. False, with P failed, if it is not allowed. */
static bool full_name(tp_params *P, const char *name, char full[sizeof P->path])
{
    if (!tp_params_ok(P)) return false;
    if (!name || !*name)
        tp__err(&P->err, TP_E_VALUE, "tp_param: parameter %d, below '%.200s', has %s name",
                P->n + 1, P->path, name ? "an empty" : "no");
    else if (!join(P, name, full, sizeof P->path))
        tp__err(&P->err, TP_E_VALUE, "tp_param: the name '%.200s...' is too long", P->path);
    else if (tp__is_complete(P))
        tp__err(&P->err, TP_E_STATE,
                "tp_param '%s': the parameters are in use already; declare all of them before the "
                "first op, load, save or optimiser",
                full);
    else if (find(P, full))
        tp__err(&P->err, TP_E_VALUE, "tp_param '%s': this name exists already", full);
    return P->err.code == TP_OK;
}

/* A new entry for the node, or NULL with P failed. */
static tp_entry *append(tp_params *P, const char *full, tp_node *node)
{
    const bool fits = tp_reserve(&P->entries, &P->cap, (size_t)P->n, 1, sizeof *P->entries);
    char *name = fits ? malloc(strlen(full) + 1) : NULL;
    if (name) memcpy(name, full, strlen(full) + 1);
    if (!name || !tp__names_add(&P->index, name, P->n)) {
        free(name);
        tp__params_no_memory(P);
        return NULL;
    }
    tp_entry *e = &P->entries[P->n++];
    *e = (tp_entry){ .name = name, .node = node };
    return e;
}

/* A new entry with its own node, or NULL with P failed. */
static tp_entry *declare(tp_params *P, const char *name, tp_dtype dt, tp_shape s, int flags)
{
    char full[sizeof P->path];
    int64_t numel;
    if (!full_name(P, name, full)) return NULL;
    if (!tp__numel(&s, &numel)) {
        tp__err(&P->err, TP_E_SHAPE, "tp_param '%s': impossible shape", full);
        return NULL;
    }
    tp_node *n = tp__param_node(P);
    if (!n) {
        tp__params_no_memory(P);
        return NULL;
    }
    n->buffer = (flags & TP_BUFFER) != 0;
    n->frozen = (flags & TP_FROZEN) != 0;
    n->wants_grad = !n->buffer && !n->frozen;
    n->view = tp__view(dt, &s, NULL);
    n->index = P->n;
    tp_entry *e = append(P, full, n);
    if (e)
        e->table = (flags & TP_TABLE) != 0;
    else
        tp__param_node_free(P, n);
    return e;
}

/* The handle of a parameter that P lacks: tapes given it fail with P's text. */
static tp_tensor missing(tp_params *P)
{
    if (!P || !P->dev || !P->dev->left) return TP_FAILED;
    if (!P->missing) P->missing = tp__param_node(P);
    if (!P->missing) return TP_FAILED;
    P->missing->live = false;
    return tp__handle(P->missing);
}

tp_tensor tp_param(tp_params *P, const char *name, tp_shape s, tp_init init, int flags)
{
    tp_entry *e = P ? declare(P, name, P->dtype, s, flags) : NULL;
    if (!e) return missing(P);
    if (!(flags & TP_BUFFER) && tp__lora_freezes(P, e->name)) {
        e->node->frozen = true;
        e->node->wants_grad = false;
    }
    e->init = P->rule && !(flags & TP_BUFFER) ? P->rule(e->name, s, init, P->rule_env) : init;
    tp__init_resolve(e->name, &e->node->view, &e->init, &P->err);
    return tp__handle(e->node);
}

tp_tensor tp_buffer(tp_params *P, const char *name, tp_dtype dt, tp_shape s, const void *host)
{
    tp_entry *e = declare(P, name, dt, s, TP_BUFFER);
    if (!e) return missing(P);
    const size_t bytes = tp__view_bytes(&e->node->view);
    if (host && bytes) {
        e->content = malloc(bytes);
        if (e->content)
            memcpy(e->content, host, bytes);
        else
            tp__params_no_memory(P);
    }
    return tp__handle(e->node);
}

/* The entry of one of P's parameters, or NULL with *e set. */
tp_entry *tp__entry(const tp_params *P, tp_tensor p, const char *what, tp_err *e)
{
    if (p.node && p.node->params == P && p.node->live && p.node != P->norm && p.node->gen == p.gen)
        return &P->entries[p.node->index];
    tp__err(e, TP_E_VALUE, "%s: not a parameter of this set", what);
    return NULL;
}

void tp_tie(tp_params *P, const char *name, tp_tensor same)
{
    char full[sizeof P->path];
    if (!tp_params_ok(P)) return;
    const tp_entry *of = tp__entry(P, same, "tp_tie", &P->err);
    if (!of || !full_name(P, name, full)) return;
    const char *target = of->name; /* the entries may move */
    tp_entry *e = append(P, full, of->node);
    if (e) e->alias_of = target;
}

/* True if name is the prefix or below it. Compares whole components: "layers.1" is not above
 * "layers.10.bias". */
static bool is_below(const char *name, const char *prefix)
{
    const size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0) return false;
    return n == 0 || prefix[n - 1] == '.' || name[n] == '.' || name[n] == 0;
}

int tp_freeze(tp_params *P, const char *prefix, bool frozen)
{
    int count = 0;
    if (!tp_params_ok(P)) return 0;
    for (int i = 0; prefix && i < P->n; i++) {
        tp_entry *e = &P->entries[i];
        if (e->alias_of || e->node->buffer || !is_below(e->name, prefix)) continue;
        e->node->frozen = frozen;
        e->node->wants_grad = !frozen;
        count++;
    }
    if (count == 0)
        tp__err(&P->err, TP_E_VALUE,
                "tp_freeze: no parameter is named '%.200s' or '%.200s.*'; whole components of "
                "names are compared, and buffers and tied second names do not count",
                prefix ? prefix : "(NULL)", prefix ? prefix : "(NULL)");
    return count;
}

bool tp_next_param(const tp_params *P, tp_param_info *it)
{
    if (!it || it->index < 0 || it->index >= tp__params_some(P)->n) return false;
    const tp_entry *e = &P->entries[it->index];
    *it = (tp_param_info){ .index = it->index + 1,
                           .name = e->name,
                           .alias_of = e->alias_of,
                           .shape = tp__view_shape(&e->node->view),
                           .dtype = e->node->view.dtype,
                           .tensor = tp__handle(e->node),
                           .buffer = e->node->buffer,
                           .frozen = e->node->frozen,
                           .has_grad = e->node->grad_buf != NULL };
    return true;
}

tp_tensor tp_find(const tp_params *P, const char *name)
{
    const tp_entry *e = name ? find(tp__params_some(P), name) : NULL;
    return e ? tp__handle(e->node) : TP_NONE;
}

int64_t tp_params_count(const tp_params *P)
{
    int64_t n = 0;
    for (int i = 0; P && i < P->n; i++)
        if (!P->entries[i].alias_of && !P->entries[i].node->buffer)
            n += P->entries[i].node->view.numel;
    return n;
}

/* ---- the state of gradients ---- */

void tp_grad_clear(tp_params *P)
{
    if (!P) return;
    for (int i = 0; i < P->n; i++) tp__set_grad(P->entries[i].node, NULL);
    P->backwards = 0;
    P->given = false;
    P->grad_err = (tp_err){ 0 };
}

void tp_on_grad(tp_params *P, tp_grad_hook fn, void *env)
{
    if (!P) return;
    P->hook = fn;
    P->hook_env = env;
}
