/* tree.h - files by name in a folder or in a tar archive. */
#ifndef TP_TREE_H
#define TP_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tp_tree {
    /* Is the file wanted? Names are paths below the folder or in the archive. */
    bool (*wants)(void *env, const char *name);
    /* Gets a wanted file; `name` and the bytes last until it returns. False: enough. */
    bool (*take)(void *env, const char *name, const uint8_t *bytes, size_t n);
    /* Is a folder visited? NULL: every one. Archives are read through whatever it says. */
    bool (*enters)(void *env, const char *name);
    /* If set, gets the path of a wanted file of a folder, which is then not read. False: enough. */
    bool (*open)(void *env, const char *name, const char *path);
    void *env;
    size_t most; /* bytes that a file may have */
    char *
        why; /* [size]: why the visit failed; begin with "". A callback that writes it ends the visit */
    size_t size;
} tp_tree;

/* Visits the wanted files of a folder, sorted by the bytes of their names level by level, or of a tar file,
 * plain or packed, in its order. Companions (files.h) are passed over, and so is a link to a folder that contains
 * it. False: it has failed. */
bool tp__tree_visit(const char *path, const tp_tree *t);

/* Does a path end in the components of `tail`? "a/b/c" in "b/c", but not in "/c" or "x/c". */
bool tp__tail(const char *path, const char *tail);

#endif
