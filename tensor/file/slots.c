/* slots.c - named memory in and out of safetensors files.
 *
 * Reading has two parts: match compares names, shapes and dtypes and collects all differences in
 * one text; load verifies checksums and sizes, then copies in bounded pieces. Copying fails only if
 * the file changes meanwhile or its disk fails, so that nearly every bad file leaves the slots
 * unchanged. */
#include "tensor/file/slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/file/inner.h"

#define SHOWN  10     /* differences printed in full, at most half of them unknown tensors */
#define PIECE  4096   /* bytes compared at a time */
#define LOADED 131072 /* elements copied to a device at a time */

/* ---- the list ---- */

static char *joined(const char *a, const char *b)
{
    const size_t size = strlen(a) + strlen(b) + 1;
    char *s = malloc(size);
    if (s) snprintf(s, size, "%s%s", a, b);
    return s;
}

void tp__slots_add(tp_slots *S, tp_device *dev, const char *prefix, const char *name,
                   const tp_view *v, int same)
{
    const bool fits = tp_reserve(&S->at, &S->cap, (size_t)S->n, 1, sizeof *S->at);
    char *full = fits ? joined(prefix, name) : NULL;
    S->no_memory = S->no_memory || !full;
    if (!full) return;
    S->at[S->n] = (tp_slot){ .name = full, .view = *v, .dev = dev, .same = same < 0 ? S->n : same };
    S->n++;
}

void tp__slots_add_stretches(tp_slots *S, tp_device *dev, const char *prefix, const char *name,
                             const tp_view *v, tp_owned *parts, int n)
{
    const int before = S->n;
    if (parts) tp__slots_add(S, dev, prefix, name, v, -1);
    if (!parts || S->n == before) {
        S->no_memory = true;
        free(parts);
        return;
    }
    S->at[before].parts = parts;
    S->at[before].nparts = n;
}

void tp__slots_free(tp_slots *S)
{
    for (int i = 0; i < S->n; i++) {
        free(S->at[i].name);
        free(S->at[i].parts);
    }
    free(S->at);
    *S = (tp_slots){ 0 };
}

/* ---- writing ---- */

void tp__slots_write(const tp_slots *S, tp_writer *W, const char *prefix)
{
    static const tp_err no_memory = { TP_E_MEMORY, "out of host memory", NULL };
    if (S->no_memory) { /* the list has holes */
        tp__writer_fail(W, &no_memory);
        return;
    }
    for (int i = 0; i < S->n; i++) {
        const tp_slot *s = &S->at[i];
        const char *first = s->same == i ? "" : S->at[s->same].name;
        char *name = joined(prefix, s->name), *key = name ? joined("alias.", name) : NULL;
        char *value = key ? joined(prefix, first) : NULL;
        if (!value)
            tp__writer_fail(W, &no_memory);
        else if (s->same != i)
            tp_writer_meta(W, key, value);
        else if (s->parts)
            tp__writer_add_stretches(W, name, s->view.dtype, tp__view_shape(&s->view), s->parts,
                                     s->nparts);
        else if (s->dev)
            tp__writer_add_device(W, name, s->dev, &s->view);
        else
            tp_writer_add(W, name, s->view.dtype, tp__view_shape(&s->view), s->view.data, false);
        free(value);
        free(key);
        free(name);
    }
}

/* ---- differences ---- */

typedef enum kind { MISSING, UNREADABLE, UNKNOWN, SHAPE, DTYPE, VALUES, KINDS } kind;

static const char *const kinds[KINDS] = {
    [MISSING] = "missing",        [UNREADABLE] = "unreadable",  [UNKNOWN] = "unknown",
    [SHAPE] = "of another shape", [DTYPE] = "of another dtype", [VALUES] = "ambiguous",
};

typedef struct reading {
    const tp_slots *S;
    tp_file *F;
    const char *prefix;
    const tp_load_opts *o;
    const tp_file_tensor **from; /* [S->n], for slots with their own memory */
    const tp_slot **by_name;     /* [S->n] */
    int count[KINDS], differences, shown;
    char text[1600];
} reading;

static void differ(reading *r, kind k, const char *fmt, ...) TP_PRINTF(3, 4);
static void differ(reading *r, kind k, const char *fmt, ...)
{
    char line[512], plain[512]; /* the names come from the file */
    va_list ap;
    r->count[k]++;
    r->differences++;
    if (r->shown == SHOWN || (k == UNKNOWN && r->count[k] > SHOWN / 2)) return;
    r->shown++;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    tp__append(r->text, sizeof r->text, "\n  %s", tp_plain(line, plain, sizeof plain));
}

static bool fits(const reading *r, const char *what, tp_err *e)
{
    if (r->differences == 0) return true;
    char counts[160] = "";
    for (int k = 0; k < KINDS; k++)
        if (r->count[k])
            tp__append(counts, sizeof counts, "%s%d %s", *counts ? ", " : "", r->count[k],
                       kinds[k]);
    char path[200];
    tp__err(e, TP_E_IO, "%s does not fit these %s: %s%s",
            tp_plain(tp_file_path(r->F), path, sizeof path), what, counts, r->text);
    if (r->differences > r->shown)
        tp__append(e->text, sizeof e->text, "\n  and %d more", r->differences - r->shown);
    return false;
}

/* ---- matching ---- */

static bool begins(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* The slot name of a tensor of the file; NULL: do not load the tensor. */
static const char *local_name(const reading *r, const char *name)
{
    if (!begins(name, r->prefix)) return NULL;
    name += strlen(r->prefix);
    if (r->o->strip && begins(name, r->o->strip)) name += strlen(r->o->strip);
    return r->o->rename ? r->o->rename(name, r->o->env) : name;
}

/* Does the tensor belong to another part of a training checkpoint? */
static bool other_part(const reading *r, const char *name)
{
    name += strlen(r->prefix);
    return begins(name, "optim.") || begins(name, "ema.") || begins(name, "state.");
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const tp_slot *const *)a)->name, (*(const tp_slot *const *)b)->name);
}

static const tp_slot *find(const reading *r, const char *name)
{
    const tp_slot wanted = { .name = (char *)(uintptr_t)name }, *key = &wanted;
    const tp_slot **found =
        r->S->n ? bsearch(&key, r->by_name, (size_t)r->S->n, sizeof key, by_name) : NULL;
    return found ? *found : NULL;
}

static bool equal(tp_file *F, const tp_file_tensor *a, const tp_file_tensor *b)
{
    unsigned char x[PIECE], y[PIECE];
    bool same = a->code == TP_OK && b->code == TP_OK && a->stored == b->stored &&
                a->bytes == b->bytes && a->shape.ndim == b->shape.ndim &&
                memcmp(a->shape.dim, b->shape.dim, sizeof a->shape.dim) == 0;
    for (size_t at = 0; same && at < a->bytes; at += PIECE) {
        const size_t n = a->bytes - at < PIECE ? a->bytes - at : PIECE;
        same = tp__file_bytes(F, a, at, n, x) && tp__file_bytes(F, b, at, n, y) &&
               memcmp(x, y, n) == 0;
    }
    return same;
}

/* Finds the slot of a name in the file, with or without its wrappers; *local is the slot name. */
static const tp_slot *slot_of(const reading *r, const char *name, const char **local)
{
    char plain[512];
    const tp_slot *s = NULL;
    *local = local_name(r, name);
    if (*local) s = find(r, *local);
    if (s || !tp_file_unwrapped(name, plain, sizeof plain)) return s;
    const char *unwrapped = local_name(r, plain);
    if (!unwrapped) *local = NULL;
    return unwrapped ? find(r, unwrapped) : NULL;
}

static bool is_below(const char *name, const char *head)
{
    const size_t n = strlen(head);
    return strncmp(name, head, n) == 0 && (name[n] == '\0' || name[n] == '.');
}

/* Is a name, or NULL, o->without or below it, with or without its wrappers? */
static bool is_left_out(const reading *r, const char *name)
{
    char plain[512];
    const char *head = r->o->without;
    if (!name || !head || !*head) return false;
    return is_below(name, head) ||
           (tp_file_unwrapped(name, plain, sizeof plain) && is_below(plain, head));
}

/* Offers tensor t under one of its names. An alias without a slot is ignored. */
static void offer(reading *r, const char *name, const tp_file_tensor *t, bool alias)
{
    const char *local;
    const tp_slot *s = slot_of(r, name, &local);
    if (is_left_out(r, s ? s->name : local)) return;
    if (!s) {
        if (!local || alias || r->o->partial || other_part(r, name)) return;
        char shape[256] = "";
        tp__print_shape(shape, sizeof shape, t->shape.ndim, t->shape.dim);
        differ(r, UNKNOWN, "unknown: %.120s %s%s", name, t->stored, shape);
        return;
    }
    const tp_file_tensor **from = &r->from[s->same];
    if (!*from)
        *from = t;
    else if (*from != t && !equal(r->F, *from, t))
        differ(r, VALUES, "ambiguous: %.120s and %.120s are one here, but differ in the file",
               (*from)->name, t->name);
}

static void offer_all(reading *r)
{
    const char *key, *value;
    for (int i = 0; i < tp_file_count(r->F); i++) {
        const tp_file_tensor *t = tp_file_at(r->F, i);
        offer(r, t->name, t, false);
    }
    for (int i = 0; tp_file_meta_at(r->F, i, &key, &value); i++) {
        const tp_file_tensor *t = begins(key, "alias.") ? tp_file_find(r->F, value) : NULL;
        if (t) offer(r, key + strlen("alias."), t, true);
    }
}

/* Compares a slot with the tensor found for it. */
static void compare(reading *r, const tp_slot *s, const tp_file_tensor **from)
{
    const tp_file_tensor *t = *from;
    char here[256] = "", there[256] = "";
    if (t && t->code != TP_OK) {
        *from = NULL;
        if (!r->o->partial) differ(r, UNREADABLE, "unreadable: %.120s %.300s", s->name, t->why);
        return;
    }
    if (is_left_out(r, s->name)) return;
    if (!t) {
        tp__print_view(here, sizeof here, &s->view);
        if (!r->o->partial && !s->may_lack && !(r->o->may_lack && r->o->may_lack(s->name)))
            differ(r, MISSING, "missing: %.120s %s", s->name, here);
        return;
    }
    const tp_view v = tp__view(s->view.dtype, &t->shape, NULL);
    if (!tp__same_shape(&v, &s->view)) {
        tp__print_shape(here, sizeof here, s->view.ndim, s->view.dim);
        tp__print_shape(there, sizeof there, v.ndim, v.dim);
        *from = NULL;
        const tp_shape shape = tp__view_shape(&s->view);
        const bool resized = r->o->resizes && r->o->resizes(s->name, &shape, &t->shape);
        if (resized) tp__file_check(r->F, t); /* the caller reads it after the others changed */
        if (!r->o->partial && !resized)
            differ(r, SHAPE, "shape: %.120s is %s in the file, %s here", s->name, there, here);
        return;
    }
    const tp_stored *stored = tp__stored(t->stored);
    const bool floats = stored->kind == TP_STORED_FLOAT && tp_is_float(s->view.dtype);
    if (stored->dt != s->view.dtype && !(floats && r->o->convert))
        differ(r, DTYPE, "dtype: %.120s is %s in the file, %s here%s", s->name, t->stored,
               tp_dtype_name(s->view.dtype), floats ? " (convert allows that)" : "");
}

/* The path of F for messages. */
static const char *path_of(const tp_file *F, char shown[200])
{
    return tp_plain(tp_file_path(F), shown, 200);
}

/* Makes r->from and by_name. */
static bool prepare(reading *r)
{
    const tp_slots *S = r->S;
    r->from = S->no_memory ? NULL : calloc((size_t)S->n + 1, sizeof *r->from);
    r->by_name = r->from ? malloc(((size_t)S->n + 1) * sizeof *r->by_name) : NULL;
    if (!r->by_name) return false;
    for (int i = 0; i < S->n; i++) r->by_name[i] = &S->at[i];
    qsort(r->by_name, (size_t)S->n, sizeof *r->by_name, by_name);
    return true;
}

/* False with *e set: there is no slot of that name or below. */
static bool knows_without(const reading *r, const char *what, tp_err *e)
{
    for (int i = 0; i < r->S->n; i++)
        if (is_left_out(r, r->S->at[i].name)) return true;
    if (r->o->without)
        tp__err(e, TP_E_VALUE,
                "these %s have none of the name '%.200s' or below it to load %s without", what,
                r->o->without, tp_file_path(r->F));
    return !r->o->without;
}

static bool match(reading *r, const char *what, tp_err *e)
{
    const tp_slots *S = r->S;
    char path[200];
    bool any = S->n == 0;
    if (!knows_without(r, what, e)) return false;
    if (!any && tp_file_count(r->F) == 0) {
        tp__err(e, TP_E_IO, "%s contains no tensors", path_of(r->F, path));
        return false;
    }
    offer_all(r);
    for (int i = 0; i < S->n; i++) {
        if (S->at[i].same == i) compare(r, &S->at[i], &r->from[i]);
        any = any || r->from[i];
    }
    const bool ok = tp_file_ok(r->F) && fits(r, what, e);
    if (!tp_file_ok(r->F)) tp__err(e, TP_E_IO, "%s", tp_file_why(r->F));
    if (ok && !any)
        tp__err(e, TP_E_IO, "%s has no tensor in common with these %s; check names and prefix",
                path_of(r->F, path), what);
    return ok && any;
}

const tp_file_tensor **tp__slots_match(const tp_slots *S, tp_file *F, const char *prefix,
                                       const tp_load_opts *o, const char *what, tp_err *e)
{
    static const tp_load_opts defaults = { 0 };
    reading r = { .S = S, .F = F, .prefix = prefix, .o = o ? o : &defaults };
    char path[200];
    bool ok = false;
    if (!tp_file_ok(F))
        tp__err(e, TP_E_IO, "%s", tp_file_why(F));
    else if (!prepare(&r))
        tp__err(e, TP_E_MEMORY, "%s: out of host memory while reading", path_of(F, path));
    else
        ok = match(&r, what, e);
    free(r.by_name);
    if (ok) return r.from;
    free(r.from);
    return NULL;
}

/* ---- loading ---- */

/* Reads n elements of t, from `first` on, to `to`: directly into host memory, and in pieces for a
 * device, NULL for none. */
static bool load_part(tp_file *F, const tp_file_tensor *t, int64_t first, int64_t n, tp_device *dev,
                      tp_dtype dt, char *to, void *piece)
{
    const size_t size = tp_dtype_size(dt);
    if (!dev) return tp_file_read_part(F, t, first, n, dt, to);
    for (int64_t at = 0; at < n; at += LOADED) {
        const int64_t some = n - at < LOADED ? n - at : LOADED;
        if (!tp_file_read_part(F, t, first + at, some, dt, piece)) return false;
        dev->be->upload(dev, to + (size_t)at * size, piece, (size_t)some * size);
    }
    return true;
}

static bool load(tp_file *F, const tp_slot *s, const tp_file_tensor *t, void *piece)
{
    const tp_dtype dt = s->view.dtype;
    bool done = true;
    int64_t first = 0;
    if (!s->parts) return load_part(F, t, 0, t->numel, s->dev, dt, s->view.data, piece);
    for (int i = 0; done && i < s->nparts; i++) {
        const tp_owned *p = &s->parts[i];
        const int64_t n = (int64_t)(p->bytes / tp_dtype_size(dt));
        done = !p->data || load_part(F, t, first, n, s->dev, dt, (char *)(uintptr_t)p->data, piece);
        first += n;
    }
    return done;
}

bool tp__slots_load(const tp_slots *S, tp_file *F, const tp_file_tensor *const *from,
                    tp_err *refusal, tp_err *e)
{
    void *piece = malloc(LOADED * sizeof(double));
    if (!piece) {
        tp__err(refusal, TP_E_MEMORY, "%.200s: out of host memory while reading", tp_file_path(F));
        return false;
    }
    bool ok = true;
    for (int i = 0; ok && i < S->n; i++) ok = !from[i] || tp__file_check(F, from[i]);
    if (!ok) tp__err(refusal, TP_E_IO, "%s", tp_file_why(F));
    const bool sound = ok;
    for (int i = 0; ok && i < S->n; i++) ok = !from[i] || load(F, &S->at[i], from[i], piece);
    if (sound && !ok) tp__err(e, TP_E_IO, "%s; some values were already loaded", tp_file_why(F));
    free(piece);
    return ok;
}
