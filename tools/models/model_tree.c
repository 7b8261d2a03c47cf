/* model_tree.c - runs a model once on a dry device, and sorts its ops into a tree.
 *
 * An op belongs to the module in whose scope it ran, or to the part of that module whose parameter
 * it reads: tp_linear with the weight of "ff.fc2" belongs to fc2, whichever module calls it. A
 * tensor computed from parameters only (a slice, a standardised weight) counts as a parameter. */
#include "model_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <tapegrad/observe.h>

/* A parameter, or a tensor computed from parameters only, and the module that owns it. */
typedef struct origin {
    tp_tensor x;
    int layer;
} origin;

typedef struct builder {
    model_tree *t;
    origin *of;
    int n;
    size_t room;
    bool no_memory;
} builder;

/* ---- nodes ---- */

/* The child of a node with this name [n], created if missing; -1 if out of memory. */
static int child_of(builder *b, int parent, const char *name, size_t n)
{
    model_tree *t = b->t;
    int last = -1;
    for (int i = parent < 0 ? -1 : t->at[parent].child; i >= 0; last = i, i = t->at[i].next)
        if (strlen(t->at[i].name) == n && memcmp(t->at[i].name, name, n) == 0) return i;
    if (n >= sizeof t->at->name || !tp_reserve(&t->at, &t->room, (size_t)t->n, 1, sizeof *t->at)) {
        b->no_memory = true;
        return -1;
    }
    layer *at = t->at;
    at[t->n] = (layer){ .parent = parent, .child = -1, .next = -1 };
    memcpy(at[t->n].name, name, n);
    if (last >= 0)
        at[last].next = t->n;
    else if (parent >= 0)
        at[parent].child = t->n;
    return t->n++;
}

/* The node of a path of n bytes, such as "layers.0.attn". */
static int node_of(builder *b, const char *path, size_t n)
{
    int at = 0;
    for (const char *end = path + n; path < end && at >= 0;) {
        const size_t word =
            strcspn(path, ".") < (size_t)(end - path) ? strcspn(path, ".") : (size_t)(end - path);
        at = child_of(b, at, path, word);
        path += word + 1;
    }
    return at;
}

static bool is_below(const model_tree *t, int a, int ancestor)
{
    while (a >= 0 && a != ancestor) a = t->at[a].parent;
    return a >= 0;
}

/* ---- parameters ---- */

static void note_origin(builder *b, tp_tensor x, int node)
{
    if (tp_reserve(&b->of, &b->room, (size_t)b->n, 1, sizeof *b->of))
        b->of[b->n++] = (origin){ x, node };
    else
        b->no_memory = true;
}

static int origin_of(const builder *b, tp_tensor x)
{
    for (int i = b->n - 1; i >= 0; i--)
        if (b->of[i].x.node == x.node && b->of[i].x.gen == x.gen) return b->of[i].layer;
    return -1;
}

static void add_parameters(builder *b, tp_params *P)
{
    for (tp_param_info it = { 0 }; tp_next_param(P, &it) && !b->no_memory;) {
        const char *dot = strrchr(it.name, '.');
        const int node = node_of(b, it.name, dot ? (size_t)(dot - it.name) : 0);
        if (node < 0) return;
        if (it.buffer) b->t->buffers += tp_numel(it.tensor);
        if (it.frozen && !it.buffer && !it.alias_of) b->t->frozen += tp_numel(it.tensor);
        if (it.buffer || it.alias_of) { /* a tied parameter counts under its first name */
            b->t->at[node].op = it.buffer ? "buffer" : "tied";
            continue;
        }
        note_origin(b, it.tensor, node);
        for (int i = node; i >= 0; i = b->t->at[i].parent)
            b->t->at[i].params += tp_numel(it.tensor);
    }
}

/* ---- ops ---- */

/* The node that an op belongs to: the part of its scope that owns the last parameter among the
 * inputs, or the scope itself if there is none. *all is set if all inputs are parameters. */
static int reader_of(const builder *b, const tp_seen *s, int scope, bool *all)
{
    int reader = scope;
    *all = true;
    for (int i = 0; i < s->nx; i++) {
        const int from = origin_of(b, s->x[i]);
        if (from >= 0 && is_below(b->t, from, scope)) reader = from;
        if (from < 0 && tp_given(s->x[i])) *all = false;
    }
    return reader;
}

static int64_t elements(const tp_shape *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->ndim; i++) n *= s->dim[i];
    return n;
}

static void note_op(model_tree *t, int node, const tp_seen *s, double macs)
{
    layer *l = &t->at[node];
    const tp_shape y = tp_shape_of(s->y[0]);
    if (!l->largest.ndim || macs > l->most ||
        (macs == l->most && elements(&y) > elements(&l->largest))) {
        l->largest = y;
        l->most = macs;
        l->op = s->op->name;
    }
    for (int i = node; i >= 0; i = t->at[i].parent) {
        t->at[i].ran = true;
        t->at[i].output = y;
        t->at[i].macs += macs;
    }
}

static void see(void *env, tp_tape *T, const tp_seen *s)
{
    builder *b = env;
    bool of_parameters;
    const double macs = tp_seen_macs(s);
    const int scope = node_of(b, s->path, strlen(s->path));
    (void)T;
    if (b->no_memory) return;
    int node = reader_of(b, s, scope, &of_parameters);
    if (of_parameters && macs == 0.0 && s->nx > 0) {
        note_origin(b, s->y[0], node);
        return;
    }
    if (macs > 0.0 && node == scope) {
        char name[64];
        snprintf(name, sizeof name, "(%.60s)", s->op->name);
        node = child_of(b, scope, name, strlen(name));
        if (node < 0) return;
    }
    note_op(b->t, node, s, macs);
}

/* Merges a module that consists of one op with that op; other modules have no op. */
static void settle(model_tree *t)
{
    for (int i = t->n - 1; i > 0; i--) {
        layer *l = &t->at[i];
        const layer *only = l->child >= 0 && t->at[l->child].next < 0 ? &t->at[l->child] : NULL;
        if (only && only->name[0] == '(') {
            l->op = only->op;
            l->largest = only->largest;
            l->child = -1;
        }
        if (l->child >= 0)
            l->op = NULL;
        else if (l->ran)
            l->output = l->largest;
    }
    t->at[0].op = NULL;
}

/* ---- the whole tree ---- */

bool model_tree_build(model_tree *t, const tree_source *s, char *why, size_t size)
{
    builder b = { .t = t };
    *t = (model_tree){ 0 };
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const size_t n = strlen(s->name);

    s->declare(s->env, P);
    child_of(&b, -1, s->name, n < 63 ? n : 63);
    if (!b.no_memory) add_parameters(&b, P);
    tp_record(T, false);
    for (int k = 1; k <= s->runs && !b.no_memory; k++) {
        tp_reset(T);
        if (k == s->runs) tp_observe(T, see, &b);
        t->input = s->run(s->env, T);
    }
    tp_observe(T, NULL, NULL);
    const bool done = tp_ok(T) && !b.no_memory;
    if (!done) snprintf(why, size, "%s", b.no_memory ? "out of memory" : tp_why(T));
    if (done) settle(t);
    if (s->close) s->close(s->env, T);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
    free(b.of);
    return done;
}

void model_tree_free(model_tree *t)
{
    free(t->at);
}

bool model_tree_equal(const model_tree *t, int a, int b)
{
    const layer *x = &t->at[a], *y = &t->at[b];
    if (x->params != y->params || x->macs != y->macs || x->op != y->op || x->ran != y->ran ||
        x->output.ndim != y->output.ndim ||
        memcmp(x->output.dim, y->output.dim, sizeof x->output.dim) != 0)
        return false;
    for (a = x->child, b = y->child; a >= 0 && b >= 0; a = t->at[a].next, b = t->at[b].next)
        if (strcmp(t->at[a].name, t->at[b].name) != 0 || !model_tree_equal(t, a, b)) return false;
    return a < 0 && b < 0;
}
