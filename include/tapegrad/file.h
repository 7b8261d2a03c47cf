/* file.h - files of tensors: reading with every offset checked, and atomic writing. Safetensors and
 * NumPy's arrays are read and written; PyTorch's checkpoints and indices of several files are
 * read. */
#ifndef TAPEGRAD_FILE_H
#define TAPEGRAD_FILE_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tp_file tp_file;
typedef struct tp_writer tp_writer;

/* A tensor in a file. Files may hold more dtypes than tp_dtype has; reading converts them.
 *
 * `code` is TP_OK, or the elements cannot be read and `why` completes "tensor 'NAME' ": TP_E_DTYPE
 * if the library does not know such tensors ("is sparse; ..."), TP_E_IO if the file describes this
 * one wrongly. Then numel is 0, shape has no axes unless the file has them, and reading it fails
 * with that text. */
typedef struct tp_file_tensor {
    const char *name;
    const char *stored; /* "F32", "F64", "F16", "BF16", "I64", "I32", "U8", "BOOL", ... */
    tp_shape shape;
    int64_t numel;
    size_t offset, bytes; /* of the stored form; safetensors: from the start of the data */
    tp_code code;
    const char *why; /* NULL if code is TP_OK */
} tp_file_tensor;

/* Opens and checks a file of tensors; the format is detected from its first bytes
 * (docs/checkpoints.md). NumPy's arrays, .npy and .npz, are read in formats 1.0 to 3.0, both byte
 * orders and both orders of axes, compressed or not; the array of a .npy is called arr_0, others by
 * their names without .npy. In safetensors: header length, JSON, names (no duplicates), dtypes,
 * shapes, offsets (in range, no overlap, no gap). Never NULL; for a bad file the result is a failed
 * object whose text says what is wrong and where. Errors in one tensor are reported by that tensor
 * (tp_file_tensor.why); the others are read. Tensors are read on demand, so opening costs only the
 * header, and the file stays open. If the file is truncated or unreadable at that point, the object
 * fails.
 *
 * The input is untrusted: opening takes at most 16 MiB of memory and 128 bytes for each byte of the
 * file's description of its tensors (header, index, pickle), and never more than 2 GiB; time is
 * linear in the same. The bytes of all tensors together are at most 256 times those of the file, of
 * a compressed .npz 1100 times; its arrays are unpacked into an unnamed temporary file.
 *
 * Files written by tp_writer carry checksums. The header's is compared here, a tensor's before any
 * of its elements is returned, so only the parts of a large file that are used get checked. Files
 * of other programs, which have none, are read as they are; the CRC-32 of the
 * entries of a .npz are compared before their elements are returned, of other archives those of
 * compressed entries, as they are unpacked. */
TP_API tp_file *tp_file_open(const char *path);
TP_API void tp_file_close(tp_file *F);
TP_API bool tp_file_ok(const tp_file *F);
TP_API const char *tp_file_why(const tp_file *F);
TP_API const char *tp_file_path(const tp_file *F);

/* Number of tensors, and tensor i in the order of the file; NULL: none. */
TP_API int tp_file_count(const tp_file *F);
TP_API const tp_file_tensor *tp_file_at(const tp_file *F, int i);
TP_API const tp_file_tensor *tp_file_find(const tp_file *F, const char *name); /* NULL: none */

/* Copies a tensor's name to `plain` without the components that PyTorch's wrappers of modules put
 * into it, anywhere: "_orig_mod" (torch.compile), "module" (DataParallel, DistributedDataParallel,
 * AveragedModel), "_fsdp_wrapped_module" and "_checkpoint_wrapped_module", among others. False if
 * there are none, if nothing else remains, or if plain is too small. */
TP_API bool tp_file_unwrapped(const char *name, char *plain, size_t size);

/* Restricts F to the tensors whose names begin with prefix and removes it: "model." of a checkpoint
 * that also holds an optimiser. Earlier tp_file_tensor pointers of F become invalid. Fails F if
 * there is no such tensor. */
TP_API bool tp_file_enter(tp_file *F, const char *prefix);

/* Restricts the tensors whose names begin with prefix to this process's part of their first axis:
 * rows that tp_peers_commit joined, perhaps by another number of processes. Checksums are still
 * those of whole tensors. Earlier tp_file_tensor pointers of F become invalid, and what
 * tp_file_data returned for these tensors. Fails F if the rows cannot be divided evenly. */
TP_API bool tp_file_share(tp_file *F, const char *prefix, tp_share share);

/* Renames the tensors of F to what `rename` returns, in a buffer that it may reuse; NULL removes
 * the tensor. Earlier tp_file_tensor pointers of F become invalid. Fails F if two names are
 * equal. */
TP_API bool tp_file_rename(tp_file *F, const char *(*rename)(const tp_file_tensor *t, void *env),
                           void *env);

/* Rows of a tensor or, transposed, of a matrix's transpose. */
typedef struct tp_file_part {
    const char *name;
    int64_t first, rows; /* of the first axis, after transposing */
    bool transposed;
} tp_file_part;

/* Replaces a tensor of F by n parts, each a tensor of its own: a matrix [3d,d] of queries, keys and
 * values by three, or a matrix by its transpose. Nothing is read, except for the checksum if F has
 * any; the parts need not cover the tensor, and may overlap. Names are copied. Earlier
 * tp_file_tensor pointers of F become invalid, and what tp_file_data returned for this tensor.
 * Fails F if it has no such tensor, if the tensor cannot be read or does not have those rows, if it
 * already has a part's name, or if n is not positive. */
TP_API bool tp_file_split(tp_file *F, const char *name, const tp_file_part *parts, int n);

/* The stored bytes of a tensor, read once and kept until F is closed; tp_file_read needs no such
 * copy. NULL, with F failed, if they cannot be read. */
TP_API const void *tp_file_data(tp_file *F, const tp_file_tensor *t);

/* tp_file_has_checksums: true if the file carries checksums. tp_file_verify compares those of all
 * tensors not read yet, and the CRC-32 of a .npz; a damaged tensor fails F, whose text names it.
 * True if there are no checksums. */
TP_API bool tp_file_has_checksums(const tp_file *F);
TP_API bool tp_file_verify(tp_file *F);

/* The string metadata, without checksums. tp_file_meta_at gives the i-th pair; false past the
 * end. */
TP_API const char *tp_file_meta(const tp_file *F, const char *key); /* NULL if absent */
TP_API bool tp_file_meta_at(const tp_file *F, int i, const char **key, const char **value);

/* Reads a metadata number. False, with F failed and the key named, if the value is not exactly one
 * finite number. If the key is absent, returns true and leaves *x unchanged. */
TP_API bool tp_file_int(tp_file *F, const char *key, int64_t *x);
TP_API bool tp_file_num(tp_file *F, const char *key, double *x);

/* Copies a tensor to host, numel elements of dt. F16, BF16, F32 and F64 convert into each other, as
 * do integers and BOOL (0 or 1), with a range check. Anything else fails F, and so does a NULL t,
 * the result of tp_file_find for an unknown name. */
TP_API bool tp_file_read(tp_file *F, const tp_file_tensor *t, tp_dtype dt, void *host);

/* The same for elements first to first+n-1 in row-major order, to read large tensors in pieces. The
 * first piece reads the whole tensor once more, for its checksum. */
TP_API bool tp_file_read_part(tp_file *F, const tp_file_tensor *t, int64_t first, int64_t n,
                              tp_dtype dt, void *host);

/* A writer collects metadata and tensors in host memory, which it borrows until commit. Never NULL.
 * Like other objects it keeps its first error; a name or key given twice is an error. The file
 * orders tensors by element size, so that all are aligned, then as they were added. The writer adds
 * checksums (docs/checkpoints.md); metadata must not use their keys. A NULL value, from a caller
 * that ran out of memory, fails the writer with TP_E_MEMORY. */
TP_API tp_writer *tp_writer_new(const char *path);

/* The same for NumPy, whose numpy.load reads the file: if the path ends in .npy one tensor, whose
 * name is not written, else a .npz, an uncompressed archive of any number in the order in which
 * they were added. bf16, which NumPy lacks, is written as f32. Metadata are refused, and there are
 * no checksums but the archive's. Format 1.0 (numpy.lib.format); not by several processes. */
TP_API tp_writer *tp_writer_numpy(const char *path);

TP_API void tp_writer_meta(tp_writer *W, const char *key, const char *value);
TP_API void tp_writer_meta_int(tp_writer *W, const char *key, int64_t value);
TP_API void tp_writer_meta_num(tp_writer *W, const char *key, double value); /* exact round trip */

/* Adds a tensor. Unless copy is set, host must stay valid until tp_writer_commit. */
TP_API void tp_writer_add(tp_writer *W, const char *name, tp_dtype dt, tp_shape s, const void *host,
                          bool copy);

/* Makes commit refuse NaN and infinity (TP_E_NONFINITE). The previous file is then unchanged, so
 * that a diverging run keeps its last good checkpoint. */
TP_API void tp_writer_finite(tp_writer *W);

/* Writes path.tmp-PID-N, syncs it, renames it over path and syncs the folder. On an error the
 * previous file is unchanged, the temporary one is removed, and tp_writer_why says what failed and
 * where; only if syncing the folder fails is the new file in place, and the text says so. May be
 * called once; free the writer afterwards. Synchronises if values of a device were added. */
TP_API bool tp_writer_commit(tp_writer *W);
TP_API bool tp_writer_ok(const tp_writer *W);
TP_API const char *tp_writer_why(const tp_writer *W);
TP_API tp_code tp_writer_code(const tp_writer *W);
TP_API void tp_writer_free(tp_writer *W);

/* Replaces the content of a file by n bytes in the same way; never a device, a pipe or a socket.
 * False with the reason in why; the previous file is then unchanged. */
TP_API bool tp_file_replace(const char *path, const void *bytes, size_t n, char *why, size_t size);

/* The same for files that belong together, at most 8: unless all could be written, none is
 * replaced. (Only if renaming one fails then, earlier ones are already in place.) */
typedef struct tp_new_file {
    const char *path;
    const void *bytes;
    size_t n;
} tp_new_file;
TP_API bool tp_files_replace(const tp_new_file *files, int n, char *why, size_t size);

/* Creates the file path.tmp-PID-N, which no other thread or process writes, and returns its
 * descriptor for reading and writing, or -1 with errno set. name gets its name, TP_TEMPORARY bytes
 * longer than path. */
enum { TP_TEMPORARY = 48 };
TP_API int tp_open_temporary(const char *path, char *name, size_t size);

/* Opens a regular file for reading without ever blocking. Returns a descriptor, which the caller
 * closes, and the file's size in *bytes. Returns -1 with errno set on an error; *kind then
 * describes what is not a regular file ("a pipe") and is NULL otherwise. */
TP_API int tp_open_regular(const char *path, int64_t *bytes, const char **kind);

/* Reads n bytes of a descriptor from offset `from` and returns how many it has read: fewer than n
 * at the end of the file (errno is 0) or on an error. */
TP_API size_t tp_read_bytes(int fd, int64_t from, void *to, size_t n);

/* Writes n bytes to a descriptor, however many calls that takes. False with errno set. */
TP_API bool tp_write_bytes(int fd, const void *bytes, size_t n);

/* Numbers in files and settings follow C's rules, with a point, whatever locale the program has set
 * with setlocale. tp_number_read is strtod by these rules. tp_number_write writes the decimal
 * number with the fewest significant digits, from `digits` to 17, that reads back as x, and returns
 * its length as snprintf does. */
TP_API double tp_number_read(const char *text, char **end);
TP_API int tp_number_write(char *text, size_t size, double x, int digits);

/* Between the two calls the thread has C's locale, for other libraries that read or write numbers.
 * tp_c_locale_begin returns what tp_c_locale_end takes to restore the thread's locale. */
TP_API void *tp_c_locale_begin(void);
TP_API void tp_c_locale_end(void *before);

/* True if text is valid UTF-8, so that a checkpoint can hold it. */
TP_API bool tp_is_utf8(const char *text);
/* Reads the UTF-8 character at text, at its end the final zero. Returns its length, 1 to 4; 0 if it
 * is invalid. */
TP_API size_t tp_utf8_at(const char *text, uint32_t *character);

enum { TP_PLAIN = 17 }; /* room for four escaped bytes */

/* Writes the character at text to `shown` so that it cannot command a terminal: control characters,
 * those that reverse or hide text, and bytes that are not UTF-8 become \n, \t or \xHH. Returns the
 * bytes of text that were read; 0 at its end. */
TP_API size_t tp_plain_at(const char *text, char shown[TP_PLAIN]);
/* Does so for all of text, cut off where `shown` is full; returns shown. Names in messages pass
 * through it. */
TP_API const char *tp_plain(const char *text, char *shown, size_t size);
/* Skips the byte order mark of UTF-8 at the start of a file's content, of which at least the first
 * 4096 bytes must be present. False with the reason in why (NULL: not wanted), such as "is UTF-16;
 * convert it to UTF-8, ...", to follow the name of the file: UTF-16 and UTF-32, with a mark or
 * recognised by their zero bytes, and other zero bytes. */
TP_API bool tp_skip_bom(const char **text, size_t *n, char *why, size_t size);
/* Parses JSON of n bytes with jansson (jansson.h) and its flags, by C's rules for numbers. The
 * caller releases the result with json_decref. NULL with *e filled; *starved: because memory ran
 * out. e and starved may be NULL. */
struct json_t;
struct json_error_t;
TP_API struct json_t *tp_json_parse(const char *text, size_t n, size_t flags,
                                    struct json_error_t *e, bool *starved);
/* jansson's text for an error in JSON, without the names of its flags. */
TP_API const char *tp_json_reason(const char *text);

/* True if a text, such as the name of a parameter or a file, ends in `end`. */
TP_API bool tp_ends_in(const char *text, const char *end);

/* Makes room for n elements of `size` bytes after the `used` ones of an array, growing *room at
 * least twofold; `array` is the address of its pointer, which is NULL at first and freed with
 * free(). False: out of memory; the array is unchanged. */
TP_API bool tp_reserve(void *array, size_t *room, size_t used, size_t n, size_t size);

/* Creates a folder and its missing parents. False with the reason in why. */
TP_API bool tp_make_folders(const char *path, char *why, size_t size);

/* Advice for a file error (errno): "make room on the disk". */
TP_API const char *tp_file_advice(int error);

/* How tp_load matches the tensors of a file with parameters. */
typedef struct tp_load_opts {
    bool partial;      /* skip missing, extra and wrongly shaped tensors instead of failing */
    bool convert;      /* accept and convert other floating dtypes */
    const char *strip; /* prefix to remove from names in the file, where present */
    const char *(*rename)(const char *name, void *env); /* NULL result: skip the tensor */
    void *env;
    /* True: the parameter keeps its value, and the caller loads the tensor of another shape itself.
     * NULL: never. */
    bool (*resizes)(const char *name, const tp_shape *here, const tp_shape *there);
    /* True: the parameter keeps its value if the file lacks it. NULL: never. */
    bool (*may_lack)(const char *name);
    /* The parameters of this name and below it, as in tp_freeze, keep their values, and tensors of
     * such names in the file are passed over: "fc" for a head of another size. All others must fit
     * as ever. It is an error if there are no such parameters. */
    const char *without;
} tp_load_opts;

#ifdef __cplusplus
}
#endif
#endif
