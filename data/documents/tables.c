/* tables.c - reads tables from a folder or tar archive, line by line and cell by cell. */
#include "documents.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/file.h>

#include "load.h"

static const size_t largest_table = (size_t)1 << 33;

typedef struct table {
    tp_documents *X;
    const char *path, *name;
    void (*f)(tp_documents *X, const char *where, const char *bytes, size_t n, void *env);
    void *env;
    bool found;
} table;

/* Passes on the content of a file, without a byte order mark. */
static void read_text(table *t, const char *where, const char *bytes, size_t n)
{
    char why[200];
    if (tp_skip_bom(&bytes, &n, why, sizeof why))
        t->f(t->X, where, bytes, n, t->env);
    else
        tp__fail(t->X, "%.700s %s", where, why);
}

static bool is_table(void *env, const char *name)
{
    const table *t = env;
    return tp__tail(name, t->name);
}

static bool take_table(void *env, const char *name, const uint8_t *bytes, size_t n)
{
    table *t = env;
    char where[PATH_MAX];
    snprintf(where, sizeof where, "%s/%s", t->path, name);
    t->found = true;
    read_text(t, where, (const char *)bytes, n);
    return false;
}

/* FILE.tsv, FILE.tsv.gz ... */
static bool named_like_a_table(const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strstr(slash ? slash : path, ".tsv");
    return dot && !strchr(dot, '/') && (dot[4] == '\0' || (dot[4] == '.' && !strchr(dot + 5, '.')));
}

bool tp__table_visit(tp_documents *X, const char *path, const char *name,
                     void (*f)(tp_documents *X, const char *where, const char *bytes, size_t n,
                               void *env),
                     void *env)
{
    table t = { .X = X, .path = path, .name = name, .f = f, .env = env };
    const tp_tree tree = { .wants = is_table,
                           .take = take_table,
                           .env = &t,
                           .most = largest_table,
                           .why = X->why,
                           .size = sizeof X->why };
    tp__documents_from(X, path);
    if (named_like_a_table(path)) {
        char why[256];
        tp_blob b;
        if (tp__blob_load(&b, path, 0, why, sizeof why))
            read_text(&t, path, (const char *)b.bytes, b.size);
        else
            tp__fail(X, "%.700s %s", path, why);
        tp__blob_free(&b);
    } else if (tp__tree_visit(path, &tree) && !t.found) {
        tp__fail(X, "%.700s contains no file %s", path, name);
    }
    return !X->why[0];
}

bool tp__next_line(tp_lines *L)
{
    while (L->next < L->end) {
        const char *stop = memchr(L->next, '\n', (size_t)(L->end - L->next));
        if (!stop) stop = L->end;
        L->at = L->next;
        L->n = (size_t)(stop - L->at);
        L->next = stop < L->end ? stop + 1 : stop;
        L->number++;
        if (L->n && L->at[L->n - 1] == '\r') L->n--;
        if (L->n) return true;
    }
    return false;
}

bool tp__next_cell(const tp_lines *L, const char **at, const char **cell, size_t *n)
{
    const char *end = L->at + L->n;
    if (!*at) return false;
    const char *stop = memchr(*at, '\t', (size_t)(end - *at));
    *cell = *at;
    *n = (size_t)((stop ? stop : end) - *at);
    *at = stop ? stop + 1 : NULL;
    return true;
}
