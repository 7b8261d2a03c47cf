/* tree.h - files by name in a folder or in a tar archive, and rows of tables, for readers of documents. */
#ifndef TP_TREE_H
#define TP_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "documents.h"

typedef struct tp_tree {
    /* Is the file wanted? Names are paths below the folder or in the archive. */
    bool (*wants)(void *env, const char *name);
    /* Gets a wanted file; `name` and the bytes last until it returns. False: enough. */
    bool (*take)(void *env, const char *name, const uint8_t *bytes, size_t n);
    /* Is a folder visited? NULL: every one. Archives are read through whatever it says. */
    bool (*enters)(void *env, const char *name);
    void *env;
    size_t most; /* bytes that a file may have */
} tp_tree;

/* Visits the wanted files of a folder, sorted by the bytes of their names level by level, or of a tar file,
 * plain or packed, in its order. False: X has failed. */
bool tp__tree_visit(tp_documents *X, const char *path, const tp_tree *t);

/* Reads one file: `path` itself if it is named like a table (.tsv, also packed), else the first file below
 * it whose name ends in /NAME or is NAME. f gets the path for messages. False: X has failed, also if there
 * is no such file. */
bool tp__table_visit(tp_documents *X, const char *path, const char *name,
                     void (*f)(tp_documents *X, const char *where, const char *bytes, size_t n,
                               void *env),
                     void *env);

/* Does a path end in the components of `tail`? "a/b/c" in "b/c", but not in "/c" or "x/c". */
bool tp__tail(const char *path, const char *tail);

/* The lines of a text that are not empty, without their ends (LF or CRLF). */
typedef struct tp_lines {
    const char *next, *end; /* what has not been read yet  */
    const char *at;         /* the line                    */
    size_t n;               /* its bytes                   */
    int64_t number;         /* its number, from 1          */
} tp_lines;
bool tp__next_line(tp_lines *L);

/* The next cell of a line, up to a tab or the end; begin with *at = L->at. False: there is none. */
bool tp__next_cell(const tp_lines *L, const char **at, const char **cell, size_t *n);

#endif
