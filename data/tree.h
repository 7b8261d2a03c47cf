/* tree.h - visits files by name in a folder or a tar archive. */
#ifndef TP_TREE_H
#define TP_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tp_tree {
    /* Is the file wanted? Names are paths below the folder or in the archive. */
    bool (*wants)(void *env, const char *name);
    /* Gets a wanted file; `name` and the bytes are valid until it returns. False: stop. */
    bool (*take)(void *env, const char *name, const uint8_t *bytes, size_t n);
    /* Should a folder be visited? NULL: every one. Archives are read through regardless. */
    bool (*enters)(void *env, const char *name);
    /* If set, gets the path of a wanted file of a folder instead of its bytes. False: stop. */
    bool (*open)(void *env, const char *name, const char *path);
    void *env;
    size_t most; /* bytes that a file may have */
    /* [size]: the reason of a failure; begin with "". A callback that writes it ends the visit. */
    char *why;
    size_t size;
} tp_tree;

/* Visits the wanted files of a folder, level by level in byte order of names, or of a tar file,
 * plain or compressed, in its order. Skips companions (files.h) and links to folders that contain
 * them. False: it has failed. */
bool tp__tree_visit(const char *path, const tp_tree *t);

/* Does a path end in the components of `tail`? "a/b/c" does in "b/c", but not in "/c" or "x/c". */
bool tp__tail(const char *path, const char *tail);

#endif
