/* model_summary.c - prints a model's layers as a tree, with shapes, parameters and multiply-adds, and
 * the totals. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_tree.h"
#include "model_views.h"

/* ---- formatting ---- */

/* "44,294,448" */
static const char *grouped(int64_t n, char *text, size_t size)
{
    char digits[32];
    size_t used = 0;
    const int length = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < length && used + 2 < size; i++) {
        if (i && (length - i) % 3 == 0) text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

/* "110.9 G" */
static const char *scaled(double x, char *text, size_t size)
{
    static const struct {
        double unit;
        const char *name;
    } units[] = { { 1e12, "T" }, { 1e9, "G" }, { 1e6, "M" }, { 1e3, "k" } };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const double y = x / units[i].unit;
        if (y < 1.0) continue;
        snprintf(text, size, "%.*f %s", y < 10 ? 2 : y < 100 ? 1 : 0, y, units[i].name);
        return text;
    }
    snprintf(text, size, "%.0f", x);
    return text;
}

/* The number of terminal columns that UTF-8 text takes. */
static int width(const char *s)
{
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* ---- the tree ---- */

typedef struct line {
    char text[400]; /* tree branches and name */
    int layer;
} line;

typedef struct page {
    const model_tree *t;
    const summary_opts *o;
    line *at;
    int n;
    int left, ops, shapes; /* widths of columns */
} page;

/* Consecutive siblings that share a line: all equal (period 1), or alternating (period 2). */
typedef struct run {
    int period, count; /* count: repetitions of the first `period` siblings  */
    int last[2];       /* the last sibling of the first and the second kind  */
} run;

static bool is_number(const char *name)
{
    return name[0] && !name[strspn(name, "0123456789")];
}

/* The run of siblings that starts at `first` with this period. Only numbered siblings form runs. */
static run run_from(const page *p, int first, int period)
{
    const layer *at = p->t->at;
    run r = { period, 1, { first, at[first].next } };
    int i = period == 1 ? at[first].next : r.last[1] >= 0 ? at[r.last[1]].next : -1;
    if (!is_number(at[first].name)) return r;
    for (; i >= 0; r.count++) {
        const int second = period == 2 ? at[i].next : i;
        if (second < 0 || !is_number(at[second].name) || !is_number(at[i].name)) return r;
        if (!model_tree_equal(p->t, r.last[0], i)) return r;
        if (period == 2 && !model_tree_equal(p->t, r.last[1], second)) return r;
        r.last[0] = i;
        r.last[1] = second;
        i = at[second].next;
    }
    return r;
}

static void add_children(page *p, int node, const char *branch, int depth);

/* Adds the line of a node that represents `count` siblings up to `last`; every other one if the
 * period is 2. */
static void add_line(page *p, int node, const run *r, int last, bool end, const char *branch,
                     int depth)
{
    const layer *at = p->t->at;
    char below[300], name[200];
    int n = snprintf(name, sizeof name, "%s", at[node].name);
    if (r->count > 1 && r->period == 2)
        n += snprintf(name + n, sizeof name - (size_t)n, ", %s", at[at[at[node].next].next].name);
    if (r->count > r->period)
        n += snprintf(name + n, sizeof name - (size_t)n, " .. %s", at[last].name);
    if (r->count > 1) snprintf(name + n, sizeof name - (size_t)n, "  (%d x)", r->count);
    line *l = &p->at[p->n++];
    l->layer = node;
    snprintf(l->text, sizeof l->text, "%.180s%s %.200s", branch, end ? "└─" : "├─", name);
    snprintf(below, sizeof below, "%.180s%s ", branch, end ? "  " : "│ ");
    add_children(p, node, below, depth - 1);
}

/* Adds the lines of a node's children and their subtrees, each prefixed with `branch`. */
static void add_children(page *p, int node, const char *branch, int depth)
{
    const layer *at = p->t->at;
    for (int i = at[node].child; i >= 0 && depth > 0;) {
        run r = p->o->fold ? run_from(p, i, 1) : (run){ 1, 1, { i, -1 } };
        if (p->o->fold && r.count == 1) {
            const run pairs = run_from(p, i, 2);
            if (pairs.count > 1) r = pairs;
        }
        const int next = at[r.last[r.period - 1]].next;
        add_line(p, i, &r, r.last[0], next < 0 && r.period == 1, branch, depth);
        if (r.period == 2) add_line(p, at[i].next, &r, r.last[1], next < 0, branch, depth);
        i = next;
    }
}

/* The op of a line; empty if the name is already the op. */
static const char *op_of(const layer *at)
{
    return at->op && at->name[0] != '(' ? at->op : "";
}

static void print_line(const page *p, const line *l)
{
    char output[128] = "", params[32] = "-", macs[32] = "-";
    const layer *at = &p->t->at[l->layer];
    if (at->ran) shape_text(&at->output, output, sizeof output);
    if (at->params) grouped(at->params, params, sizeof params);
    if (at->macs > 0) scaled(at->macs, macs, sizeof macs);
    printf("%s%*s  %-*s  %-*s  %13s  %10s", l->text, p->left - width(l->text), "", p->ops,
           op_of(at), p->shapes, output, params, macs);
    printf(at->macs > 0 ? "  %5.1f %%\n" : "\n", 100.0 * at->macs / p->t->at[0].macs);
}

static void print_rule(int columns)
{
    while (columns-- > 0) printf("─");
    printf("\n");
}

static void widen(int *column, const char *text)
{
    if (width(text) > *column) *column = width(text);
}

static void print_tree(page *p)
{
    char text[128];
    p->left = 5;
    p->ops = 2;
    p->shapes = 6;
    for (int i = 0; i < p->n; i++) {
        const layer *at = &p->t->at[p->at[i].layer];
        widen(&p->left, p->at[i].text);
        widen(&p->ops, op_of(at));
        if (at->ran) widen(&p->shapes, shape_text(&at->output, text, sizeof text));
    }
    const int columns = p->left + p->ops + p->shapes + 40;
    printf("%-*s  %-*s  %-*s  %13s  %10s  %7s\n", p->left, "layer", p->ops, "op", p->shapes,
           "output", "parameters", "mult-adds", "share");
    print_rule(columns);
    for (int i = 0; i < p->n; i++) print_line(p, &p->at[i]);
    print_rule(columns);
}

/* ---- totals ---- */

static void print_totals(const model_tree *t, const model_facts *f, const tp_model_row *row)
{
    static const char *const samples[] = { "image", "segment after a full cache", "document" };
    char a[64], b[64];
    const bool pair = tp_model_get(&f->cfg).pair;
    const double closed = tp_model_flops(&f->cfg, 0, 0).macs, macs = t->at[0].macs;
    printf("input        %s, one %s\n", shape_text(&t->input, a, sizeof a),
           pair ? "pair of documents" : samples[f->cfg.model->input]);
    printf("parameters   %s, %.1f MiB in f32", grouped(f->params, a, sizeof a),
           (double)f->params / 262144.0);
    if (row && row->params > 0) printf("; the paper prints %s", scaled(row->params, b, sizeof b));
    if (t->frozen) printf("; %s are not trained", grouped(t->frozen, a, sizeof a));
    if (t->buffers) printf("; %s elements of buffers", grouped(t->buffers, a, sizeof a));
    printf("\nmult-adds    %s", scaled(macs, a, sizeof a));
    if (macs < closed * 0.9995)
        printf("; %s in closed form, with keys beyond the map or elementwise sums",
               scaled(closed, b, sizeof b));
    printf("\nFLOPs        %s by the paper's count", scaled(f->flops, a, sizeof a));
    if (row && row->flops > 0) printf("; the paper prints %s", scaled(row->flops, b, sizeof b));
    printf(
        "\nmemory       %.1f MiB saved for backward, %.1f with --recompute block; one sample, f32\n",
        f->kept / 1048576.0, f->kept_by_blocks / 1048576.0);
}

static void print_title(const summary_opts *o, const model_facts *f, const tp_model_row *row)
{
    const bool other = row && strcmp(row->name, o->name) != 0;
    printf("%s%s%s: %s, %s\n\n", o->name, other ? " is " : "", other ? row->name : "",
           row ? row->family : f->cfg.model->name, f->input);
}

/* ---- JSON ---- */

static json_t *layer_json(const model_tree *t, int node, int depth)
{
    const layer *at = &t->at[node];
    json_t *j = json_object();
    json_object_set_new(j, "name", json_string(at->name));
    if (at->op && node) json_object_set_new(j, "op", json_string(at->op));
    if (at->ran) json_object_set_new(j, "output", shape_json(&at->output));
    json_object_set_new(j, "parameters", json_integer(at->params));
    json_object_set_new(j, "macs", json_real(at->macs));
    if (at->child < 0 || depth == 0) return j;
    json_t *layers = json_array();
    for (int i = at->child; i >= 0; i = t->at[i].next)
        json_array_append_new(layers, layer_json(t, i, depth - 1));
    json_object_set_new(j, "layers", layers);
    return j;
}

static int summary_json(const model_tree *t, const model_facts *f, const tp_model_row *row,
                        int depth)
{
    json_t *j = layer_json(t, 0, depth);
    json_object_set_new(j, "model", json_string(f->cfg.model->name));
    if (row) json_object_set_new(j, "family", json_string(row->family));
    json_object_set_new(j, "input", shape_json(&t->input));
    json_object_set_new(j, "buffers", json_integer(t->buffers));
    json_object_set_new(j, "frozen", json_integer(t->frozen));
    json_object_set_new(j, "flops", json_real(f->flops));
    json_object_set_new(j, "activation_bytes", json_real(f->kept));
    json_object_set_new(j, "activation_bytes_recomputed", json_real(f->kept_by_blocks));
    return print_json(j);
}

/* ---- all of it ---- */

static int print_page(const model_tree *t, const model_facts *f, const tp_model_row *row,
                      const summary_opts *o)
{
    page p = { .t = t, .o = o, .at = calloc((size_t)t->n, sizeof(line)) };
    if (!p.at) {
        fprintf(stderr, "tp-models: out of memory\n");
        return 1;
    }
    snprintf(p.at[p.n++].text, sizeof p.at[0].text, "%s", t->at[0].name);
    add_children(&p, 0, "", o->depth);
    print_title(o, f, row);
    print_tree(&p);
    print_totals(t, f, row);
    free(p.at);
    return 0;
}

int model_summary(const summary_opts *o)
{
    const tp_model_row *row = tp_model_find(o->name);
    model_facts f;
    model_tree t = { 0 };
    char why[1024];
    int status = 1;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .dry = true });
    if (model_facts_of(&f, o->name, D, why, sizeof why) &&
        model_tree_build(&t, &f.cfg, row ? row->name : o->name, why, sizeof why))
        status = o->json ? summary_json(&t, &f, row, o->depth) : print_page(&t, &f, row, o);
    else
        fprintf(stderr, "tp-models: %s\n", why);
    model_tree_free(&t);
    tp_device_close(D);
    return status;
}
