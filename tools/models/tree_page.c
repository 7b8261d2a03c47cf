/* tree_page.c - prints a tree of layers as a table. */
#include "model_views.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "print_text.h"

/* ---- formatting ---- */

const char *grouped_text(int64_t n, char *text, size_t size)
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

const char *scaled_text(double x, char *text, size_t size)
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
    bool fold;
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
        run r = p->fold ? run_from(p, i, 1) : (run){ 1, 1, { i, -1 } };
        if (p->fold && r.count == 1) {
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
    if (at->params) grouped_text(at->params, params, sizeof params);
    if (at->macs > 0) scaled_text(at->macs, macs, sizeof macs);
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

static void print_page(page *p)
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

bool tree_page_print(const model_tree *t, const char *title, int depth, bool fold)
{
    page p = { .t = t, .fold = fold, .at = calloc((size_t)t->n, sizeof(line)) };
    if (!p.at) {
        fprintf(stderr, "tp-models: out of memory\n");
        return false;
    }
    snprintf(p.at[p.n++].text, sizeof p.at[0].text, "%s", t->at[0].name);
    add_children(&p, 0, "", depth);
    printf("%s\n\n", title);
    print_page(&p);
    free(p.at);
    return true;
}
