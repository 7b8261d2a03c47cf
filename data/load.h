/* load.h - the bytes of a file, unpacked where it is compressed. */
#ifndef TP_LOAD_H
#define TP_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tp_blob {
    uint8_t *bytes; /* of the heap */
    size_t size, room;
    int error; /* errno of a failure, where there is one */
} tp_blob;

/* Fills *b with at most `limit` bytes (0: all) of a regular file, unpacked; false with the reason
 * in why. Release with tp__blob_free in either case. */
bool tp__blob_load(tp_blob *b, const char *path, size_t limit, char *why, size_t size);

/* The bytes as they are, into the memory that *b has, or else more; { 0 } at first. A file of more
 * than `most` is refused. */
bool tp__blob_read(tp_blob *b, const char *path, size_t most, char *why, size_t size);
void tp__blob_free(tp_blob *b);

/* Whether a block of an .xz file names a dictionary above 256 MiB, four times that of xz -9. */
bool tp__immodest_xz(const uint8_t *bytes, size_t n);

/* A descriptor of a regular file, to be closed; -1 with the reason in why, and errno. */
int tp__open_file(const char *path, int64_t *bytes, char *why, size_t size);

#endif
