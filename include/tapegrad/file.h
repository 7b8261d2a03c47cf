/* file.h - safetensors files: reading with every offset checked, writing that is never half done.
 */
#ifndef TAPEGRAD_FILE_H
#define TAPEGRAD_FILE_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tp_file tp_file;
typedef struct tp_writer tp_writer;

/* Dtypes that files may hold beyond tp_dtype are read as `stored` and converted on request. */
typedef struct tp_file_tensor {
    const char *name;
    const char *stored; /* "F32", "F64", "F16", "BF16", "I64", "I32", "U8", "BOOL", ... */
    tp_shape shape;
    int64_t numel;
    size_t offset, bytes; /* of its stored form in the data of the file */
} tp_file_tensor;

/* Opens and checks a safetensors file: header length, JSON, names (no duplicates), dtypes, shapes,
 * offsets (in range, no overlap, no gap). Never NULL; a bad file is a failed object whose text says
 * what is wrong and where. Tensors are read when they are asked for, so opening costs only the
 * header; the file stays open. A file that is cut off or cannot be read then fails the object.
 *
 * What tp_writer wrote carries checksums: the header's is compared here, a tensor's before any of
 * its elements are given out, so that of a large file what is used is checked, and nothing else. A
 * file without them, as other programs write, is read as it is. */
TP_API tp_file *tp_file_open(const char *path);
TP_API void tp_file_close(tp_file *F);
TP_API bool tp_file_ok(const tp_file *F);
TP_API const char *tp_file_why(const tp_file *F);
TP_API const char *tp_file_path(const tp_file *F);

TP_API int tp_file_count(const tp_file *F);                       /* tensors, by offset     */
TP_API const tp_file_tensor *tp_file_at(const tp_file *F, int i); /* NULL outside the range */
TP_API const tp_file_tensor *tp_file_find(const tp_file *F, const char *name);

/* The stored bytes of a tensor of F, read once and kept until F is closed: tp_file_read needs no
 * such copy. NULL with F failed where they cannot be read. */
TP_API const void *tp_file_data(tp_file *F, const tp_file_tensor *t);

/* Does the file carry checksums? Compares those of all tensors that were not read yet; a tensor that
 * is damaged fails F and is named. True for a file without them. */
TP_API bool tp_file_has_checksums(const tp_file *F);
TP_API bool tp_file_verify(tp_file *F);

/* The string metadata, without checksums. at: i-th pair, false at the end. */
TP_API const char *tp_file_meta(const tp_file *F, const char *key); /* NULL if absent */
TP_API bool tp_file_meta_at(const tp_file *F, int i, const char **key, const char **value);

/* A metadata number: false (and F failed, naming the key) if present but not exactly one number;
 * true and *x untouched if absent. NaN and infinity are refused. */
TP_API bool tp_file_int(tp_file *F, const char *key, int64_t *x);
TP_API bool tp_file_num(tp_file *F, const char *key, double *x);

/* Copies a tensor to host (numel elements of dt). F16, BF16, F32 and F64 convert among each other,
 * integers and BOOL (0 or 1) among each other with a range check; anything else fails F, and so
 * does t == NULL (a name that tp_file_find did not find). */
TP_API bool tp_file_read(tp_file *F, const tp_file_tensor *t, tp_dtype dt, void *host);

/* The same for elements first to first+n-1 in row-major order: large tensors piece by piece. The
 * first piece costs one more reading of the tensor, for its checksum. */
TP_API bool tp_file_read_part(tp_file *F, const tp_file_tensor *t, int64_t first, int64_t n,
                              tp_dtype dt, void *host);

/* A writer collects tensors (host memory, borrowed until commit) and metadata. Never NULL. Like
 * other objects it keeps its first error; a name or key given twice is one. In the file tensors are
 * ordered by the size of their elements, so that all are aligned, and then as they were added. The
 * writer adds checksums (docs/checkpoints.md), whose keys metadata must not have. */
TP_API tp_writer *tp_writer_new(const char *path);
TP_API void tp_writer_meta(tp_writer *W, const char *key, const char *value);
TP_API void tp_writer_meta_int(tp_writer *W, const char *key, int64_t value);
TP_API void tp_writer_meta_num(tp_writer *W, const char *key, double value); /* exact round trip */

/* Adds a tensor. host must stay valid until tp_writer_commit, unless copy. */
TP_API void tp_writer_add(tp_writer *W, const char *name, tp_dtype dt, tp_shape s, const void *host,
                          bool copy);

/* From here on NaN and infinity are errors (TP_E_NONFINITE) that commit finds: the former file
 * stays what it was, so that a run which diverges keeps its last good checkpoint. */
TP_API void tp_writer_finite(tp_writer *W);

/* Writes path.tmp-PID, syncs it, renames it over path and syncs the folder. On any error the former
 * file is untouched, the temporary one removed, and tp_writer_why says what and where (only where
 * syncing the folder fails, the new file is in place, and the text says so). Once only: the writer
 * is to be freed afterwards. Synchronises if values of a device were added. */
TP_API bool tp_writer_commit(tp_writer *W);
TP_API bool tp_writer_ok(const tp_writer *W);
TP_API const char *tp_writer_why(const tp_writer *W);
TP_API tp_code tp_writer_code(const tp_writer *W);
TP_API void tp_writer_free(tp_writer *W);

/* Puts n bytes in the place of a file in the same way. False with the reason in why, and the former
 * file untouched. */
TP_API bool tp_file_replace(const char *path, const void *bytes, size_t n, char *why, size_t size);

/* Opens a file to be read: a descriptor, to be closed, and how many bytes the file has. -1, with
 * errno, where it cannot be opened or is no regular file, *kind then naming what it is ("a pipe");
 * else *kind is NULL. Never waits. */
TP_API int tp_file_regular(const char *path, int64_t *bytes, const char **kind);

/* Reads n bytes of a descriptor from an offset on. Fewer where the file ends before (errno is 0) or
 * cannot be read; how many is returned. */
TP_API size_t tp_file_bytes(int fd, int64_t from, void *to, size_t n);

/* Whether a checkpoint can hold a text. */
TP_API bool tp_is_utf8(const char *text);
/* Whether a text, such as a parameter's or a file's name, ends in `end`. */
TP_API bool tp_ends_in(const char *text, const char *end);

/* Makes a folder and its parents, where they do not exist yet. False with the reason in why. */
TP_API bool tp_make_folders(const char *path, char *why, size_t size);

/* What a user can do about an error of a file (errno): "make room on the disk". */
TP_API const char *tp_file_advice(int error);

#ifdef __cplusplus
}
#endif
#endif
