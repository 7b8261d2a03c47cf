/* load.h - reads the bytes of a file, unpacking it if it is compressed. */
#ifndef TP_LOAD_H
#define TP_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tapegrad/base.h>

typedef struct tp_blob {
    uint8_t *bytes; /* allocated with malloc */
    size_t size, room;
    int error; /* errno of a failure, or 0 */
} tp_blob;

/* Fills *b with the first `limit` unpacked bytes of a regular file (0: all). False with the reason
 * in why. Free *b in either case. */
bool tp__blob_load(tp_blob *b, const char *path, size_t limit, char *why, size_t size);

/* Loads a text of at most `most` unpacked bytes (0: any): *text [*n], zero-terminated, inside *b,
 * after any byte order mark. False with the reason in why, which directly follows the name of the
 * file: ": cannot be opened ...", " is UTF-16 ...". Free *b in either case. */
bool tp__blob_text(tp_blob *b, const char *path, size_t most, char **text, size_t *n, char *why,
                   size_t size);

/* Reads a file without unpacking it, reusing the memory of *b if it suffices; begin with { 0 }. A
 * file of more than `most` bytes is an error. */
bool tp__blob_read(tp_blob *b, const char *path, size_t most, char *why, size_t size);
void tp__blob_free(tp_blob *b);

/* Returns TP_E_MEMORY or TP_E_IO if this errno of a failed read is not the fault of the file (no
 * memory, too many open files, a failing disk), and adds the remedy to why. Such an error ends a
 * run: taking another image would silently change the training. Otherwise returns TP_OK. */
tp_code tp__shortage(int error, char *why, size_t size);

/* The limit of bytes that a packed file may unpack to: 1100 times its size, more than deflate
 * reaches, plus 16 MiB. A few bytes of xz, zstd or bzip2 could unpack to any number. */
enum { TP_UNPACKED_TIMES = 1100 };
size_t tp__most_unpacked(size_t packed);

/* Calls f for the unpacked bytes of a regular file, 2^18 at a time, until it returns false. Of
 * packed files only .xz is held in memory, still packed. False with the reason in why. An empty
 * file is no failure: f is not called. */
bool tp__load_pieces(const char *path, bool (*f)(void *env, const char *bytes, size_t n), void *env,
                     char *why, size_t size);

/* Does `name` end in `suffix`, perhaps followed by that of a packed file (".txt", ".txt.gz")? */
bool tp__is_named(const char *name, const char *suffix);

/* Does an open file begin like a compressed one? */
bool tp__begins_packed(int fd);

/* Does a block of an .xz file need a dictionary above 256 MiB, four times that of xz -9? */
bool tp__immodest_xz(const uint8_t *bytes, size_t n);

/* Opens a regular file and returns its descriptor; -1 on failure, with why and errno set. */
int tp__open_file(const char *path, int64_t *bytes, char *why, size_t size);

#endif
