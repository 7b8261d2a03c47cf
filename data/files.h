/* files.h - names of files and folders: lists of them, files that systems leave beside data, the
 * words that name a part of a set, and paths that lead to the same file. */
#ifndef TP_FILES_H
#define TP_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- lists ---- */

/* Lists a folder: the names for which `wants` returns true, or all, sorted by bytes, without
 * companions and hidden files. Returns their number; free with tp__names_free. -1: see errno. */
struct dirent;
int tp__names(const char *folder, bool (*wants)(void *env, const struct dirent *e), void *env,
              char ***names);
void tp__names_free(char **names, int n);

/* Compare texts, const char *[n] or structs that begin with one, for qsort and bsearch: by bytes,
 * or whole numbers of any length by value, equal ones ("1", "01") by bytes. */
int tp__by_bytes(const void *a, const void *b);
int tp__by_value(const void *a, const void *b);
/* Is a text a whole number, with or without '-'? */
bool tp__is_whole(const char *text);

/* ---- companions ---- */

/* Is the path a companion: did a system or tool, rather than the data, create one of its
 * components? Examples are hidden names (`._NAME`, .DS_Store, .ipynb_checkpoints), __MACOSX,
 * Thumbs.db, desktop.ini, @eaDir, lost+found. A companion is no example, no class and no error:
 * readers skip it silently. "." and ".." do not count. Pass only the path below the folder of a set
 * or in an archive: users may keep data in a hidden folder. */
bool tp__companion(const char *path);

/* ---- parts ---- */

enum { TP_NO_PART = -1 };

/* Returns the tp_part of a word in any case: train, training; val, valid, validation, dev; test,
 * testing, eval. */
int tp__part_of_word(const char *word, size_t n);

/* Returns the part given by the last such word in a file's name ("set-train-000.tar"); words are
 * runs of letters. Folders in the path do not count. */
int tp__part_of_file(const char *path);

/* ---- files behind paths ---- */

/* Begin with { 0 }, end with free(slot). */
typedef struct tp_file_set {
    struct tp_file_id {
        uint64_t device, number;
        bool used;
    } * slot; /* [room], at most half of them used; room: a power of 2 */
    size_t count, room;
} tp_file_set;

/* Adds a file. False: already present, or out of memory (*fits false). A dangling path is new. */
bool tp__file_set_add(tp_file_set *S, const char *path, bool *fits);

/* Do two paths lead to one file? */
bool tp__same_file(const char *a, const char *b);

#endif
