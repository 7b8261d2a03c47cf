/* files.h - names of files and folders: lists of them, what systems leave beside data, the words that name a part of a set,
 * and which paths lead to the same file. */
#ifndef TP_FILES_H
#define TP_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- lists ---- */

/* Lists a folder: the names that `wants` returns true for, or all, sorted by their bytes, without companions and hidden
 * files. Returns how many there are, to be freed with tp__names_free; -1 with errno set. */
struct dirent;
int tp__names(const char *folder, bool (*wants)(void *env, const struct dirent *e), void *env,
              char ***names);
void tp__names_free(char **names, int n);

/* For qsort and bsearch of texts, const char *[n]. */
int tp__by_bytes(const void *a, const void *b);

/* ---- companions ---- */

/* Is the path of a file or folder, below the folder of a set or in an archive, that of a companion: is one of its
 * components the work of a system or a tool rather than data? Hidden names (`._NAME`, .DS_Store, .ipynb_checkpoints),
 * __MACOSX, Thumbs.db, desktop.ini, @eaDir, lost+found and their like are. A companion is no example, no class and no
 * error: readers pass over it in silence. "." and ".." are components of any path. Do not ask about the part of a
 * path that a user has chosen: data may lie in a hidden folder. */
bool tp__companion(const char *path);

/* ---- parts ---- */

enum { TP_NO_PART = -1 };

/* The tp_part that a word names, in any case: train, training; val, valid, validation, dev; test, testing, eval. */
int tp__part_of_word(const char *word, size_t n);

/* The part that the name of a file names, by the last such word in it ("set-train-000.tar"); words are runs of letters.
 * The folders in a path do not count. */
int tp__part_of_file(const char *path);

/* ---- the files behind the paths ---- */

/* Begin with { 0 }, end with free(slot). */
typedef struct tp_file_set {
    struct tp_file_id {
        uint64_t device, number;
        bool used;
    } * slot; /* [room], at most half of them used; room: a power of 2 */
    size_t count, room;
} tp_file_set;

/* Adds a file. False: it is there already, or memory is out (*fits false). A path that leads to nothing is new. */
bool tp__file_set_add(tp_file_set *S, const char *path, bool *fits);

/* Do two paths lead to one file? */
bool tp__same_file(const char *a, const char *b);

#endif
