/* inner.h - shared by the reader and the writer of safetensors files.
 *
 *     8 bytes  N, little endian        N bytes  JSON, padded with blanks        the data
 *     { "__metadata__": { "key": "value" },
 *       "name": { "dtype": "F32", "shape": [2,3], "data_offsets": [begin, end] } }
 *
 * Offsets count from the first byte after the header. The data has no gap and no overlap. */
#ifndef TP_FILE_INNER_H
#define TP_FILE_INNER_H

#include <tapegrad/file.h>

#include "tensor/error.h"
#include "tensor/shape.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are read in place: only little-endian machines are supported"
#endif

/* The error text for a NULL tensor. */
#define TP_FILE_ABSENT "a tensor was read that the file does not have; see tp_file_find"

#define TP_FILE_HEADER_MAX 100000000 /* bytes of JSON; the reference reader's limit */

typedef enum tp_stored_kind { TP_STORED_FLOAT, TP_STORED_INT, TP_STORED_OTHER } tp_stored_kind;

/* A dtype of the format. `dt` is the tensor dtype with the same bits, TP_NDTYPES if there is none;
 * a dtype of kind OTHER can be listed and copied, but not converted. */
typedef struct tp_stored {
    const char *name;
    size_t size;
    tp_stored_kind kind;
    tp_dtype dt;
} tp_stored;

const tp_stored *tp__stored(const char *name); /* NULL: unknown */
const tp_stored *tp__stored_as(tp_dtype dt);   /* dt as stored */

/* A stretch of a tensor's bytes, in the memory of one process of several. */
typedef struct tp_owned {
    int owner;        /* its rank */
    size_t bytes;     /* of whole elements */
    const void *data; /* where this process is the owner */
    tp_device *dev;   /* NULL: host memory */
} tp_owned;

/* Adds a tensor that consists of stretches; the list is copied. Only tp__writer_join with more
 * processes than the highest owner can write it. */
void tp__writer_add_stretches(tp_writer *W, const char *name, tp_dtype dt, tp_shape s,
                              const tp_owned *at, int n);

/* How a writer of several processes agrees with the others and moves their bytes to rank 0. */
typedef struct tp_join {
    int rank, ranks;
    void *env;
    /* On rank 0: receives n bytes from `owner`. On the owner: sends them. False: failed. */
    bool (*move)(void *env, int owner, void *data, size_t n);
    /* True in all processes if true in any, and after an error. */
    bool (*any)(void *env, bool here);
} tp_join;

/* Commits in all processes, as tp_peers_commit describes: rank 0 writes, the others send. Every
 * process must call it, also with a failed writer, so that none waits for it in vain. If one has
 * failed, all return false, the others with TP_E_STATE. */
bool tp__writer_join(tp_writer *W, const tp_join *j, const char *rows);

/* Adds device memory under a name; tp_writer_commit reads its bytes. */
void tp__writer_add_device(tp_writer *W, const char *name, tp_device *D, const tp_view *v);

/* Like tp_writer_finite, but allows infinity, since masks contain it. */
void tp__writer_no_nan(tp_writer *W);

/* Fails the writer with the error of an object that could not supply its data. */
void tp__writer_fail(tp_writer *W, const tp_err *e);

/* Copies n of a tensor's stored bytes, beginning with byte `first`. */
bool tp__file_bytes(tp_file *F, const tp_file_tensor *t, size_t first, size_t n, void *to);

/* Can all of the tensor be read now? Verifies its checksum or, without one, that the file has not
 * shrunk since F was opened. False with F failed. */
bool tp__file_check(tp_file *F, const tp_file_tensor *t);

/* Fails the reader unless it has failed already; the text begins with "PATH: ". */
void tp__file_fail(tp_file *F, tp_code code, const char *fmt, ...) TP_PRINTF(3, 4);

/* Replaces a file by what `content` writes to PATH.tmp-PID-N, which is then synced and renamed.
 * Returns false with *e set to "PATH cannot be written: ..." and the former file untouched. content
 * returns false with errno or *e set. */
bool tp__file_replace(tp_err *e, const char *path, bool (*content)(int fd, void *env), void *env);

#endif
