/* file_set.h - a set of files, told by device and number, whatever paths lead to them. */
#ifndef TP_FILE_SET_H
#define TP_FILE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
