/* load.h - the bytes of a file, unpacked where it is compressed. */
#ifndef TP_LOAD_H
#define TP_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tp_blob {
    const uint8_t *bytes;
    size_t size;
    void *heap; /* what to free, or NULL          */
    void *map;  /* what to unmap, or NULL         */
    size_t map_size;
} tp_blob;

/* Fills *b with at most `limit` bytes (0: all) of the file; false with the reason in why. Release
 * with tp__blob_free in either case. */
bool tp__blob_load(tp_blob *b, const char *path, size_t limit, char *why, size_t why_size);
void tp__blob_free(tp_blob *b);

#endif
