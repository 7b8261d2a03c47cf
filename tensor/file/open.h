/* open.h - an open file. The reader of its format fills it; tensors are then read from it.
 *
 *     header.c    safetensors
 *     torch.c     checkpoints of PyTorch
 *     npy.c       arrays of NumPy
 *     shards.c    an index of several files
 *
 * Tensors whose elements cannot be read (tp_file_tensor.why) are listed like any other. */
#ifndef TP_FILE_OPEN_H
#define TP_FILE_OPEN_H

#include <jansson.h>

#include "tensor/file/checksum.h"
#include "tensor/file/inner.h"

struct tp_zip;

#define TP_FILE_AGAIN "; the file is damaged: copy, download or write it again"

/* The CRC-32 of a stored entry of an archive, shared by the parts of its tensor. */
typedef struct tp_entry_sum {
    size_t from, size;
    uint32_t sum;
    bool is_checked;
    struct tp_entry_sum *next; /* of the same file, which frees them */
} tp_entry_sum;

/* A tensor and the location of its elements. */
typedef struct tp_file_slot {
    tp_file_tensor tensor; /* first: a tp_file_tensor of a file is a tp_file_slot */
    int fd;
    size_t from;                 /* offset of its first element in fd */
    size_t before, after;        /* bytes of other processes' rows, see tp_file_share */
    bool swapped;                /* numbers are big-endian */
    bool scattered;              /* in the order of `stride`; else row-major without gaps */
    int64_t stride[TP_MAX_DIMS]; /* in elements */
    tp_file *shard;              /* the shard that holds it as `there`; NULL: this file */
    const tp_file_tensor *there;
    char *name;        /* a copy of the name; NULL: the JSON owns it */
    const char *first; /* the name in the file, if renamed */
    char *kept;        /* a copy of that, or NULL */
    char *stored;      /* a copy of the dtype's name, if not ours */
    char *why;         /* a copy of the reason; NULL: none, or owned by a shard */
    void *bytes;       /* returned by tp_file_data, or NULL */
    uint64_t sum;      /* the checksum, if the file has any */
    bool is_checked;
    struct tp_entry_sum *entry; /* of the archive's entry that holds it; NULL: none */
    bool placeless;             /* safetensors: its offsets are damaged */
} tp_file_slot;

struct tp_file {
    tp_err err;
    char *path;
    int fd;
    size_t size;
    size_t counted;              /* bytes of all tensors, see tp__file_count */
    size_t data_from, data_size; /* safetensors: the data after the header */
    json_t *root, *meta;         /* own the metadata and the names of a safetensors file */
    int pair;                    /* the last metadata pair read, and its place; NULL: none */
    void *pair_at;
    int n;
    size_t room;
    tp_file_slot *at;
    const tp_file_tensor **by_name;
    bool has_sums;
    tp_sum *sum;
    tp_entry_sum *entries;
    int unpacked[2]; /* unnamed files with unpacked entries */
    int nunpacked;
    tp_file **shards;
    int nshards;
    size_t shard_room;
};

/* F, or a failed file if F is NULL. */
tp_file *tp__file_some(const tp_file *F);

/* Like tp_file_open, but refuses an index of several files unless may_index. */
tp_file *tp__file_open(const char *path, bool may_index);

/* Adds a tensor by name only; the caller fills in the rest. `copy` copies the name, for names not
 * owned by the JSON. Returns NULL with F failed. */
tp_file_slot *tp__file_append(tp_file *F, const char *name, bool copy);

/* Places a tensor: its first element is at offset `from` of fd, the others follow `stride`. */
void tp__file_place(tp_file *F, tp_file_slot *t, const tp_stored *s, const tp_shape *shape,
                    const int64_t *stride, int fd, size_t from);

/* Bounds the bytes read to list all tensors, which may share those of the file, as `how` says: F
 * fails once tensors of more than 256 times its bytes are counted. */
void tp__file_count(tp_file *F, const tp_file_slot *t, const char *how);

/* Marks a tensor as unreadable, with the reason, unless it already is. */
void tp__file_spoil(tp_file *F, tp_file_slot *t, tp_code code, const char *fmt, ...)
    TP_PRINTF(4, 5);

/* Gives a tensor the name of a dtype not supported here. */
void tp__file_stored(tp_file *F, tp_file_slot *t, const char *name);

/* Fails F with the reason if a tensor cannot be read. True if it can. */
bool tp__file_readable(tp_file *F, const tp_file_tensor *t);

/* Frees what a tensor owns. */
void tp__file_drop(tp_file_slot *t);

/* Builds the index by name; call it after each change of the list. */
void tp__file_index(tp_file *F);

/* Gives all wanted entries of an archive an offset in a file. Compressed ones are unpacked into
 * *unpacked (-1: there are none), an unnamed file, so that nothing is left behind. False with F
 * failed. */
bool tp__zip_place(tp_file *F, struct tp_zip *z, int *unpacked);

/* Whether an archive holds arrays of NumPy. */
bool tp__file_is_npz(const struct tp_zip *z);

/* Adds a pair to the metadata, unless its key is not UTF-8. */
void tp__file_add_meta(tp_file *F, const char *key, const char *value);

/* Takes ownership of fd, which is closed with F. Returns it; -1 fails F. */
int tp__file_keep(tp_file *F, int fd);

/* Reads n bytes at an offset of F's own file, which had them when it was opened. */
bool tp__file_at(tp_file *F, size_t from, void *to, size_t n);

/* Parses JSON (json.c). Returns NULL with *e filled (unless e is NULL), or with F failed if out of
 * memory or with too many values. */
json_t *tp__file_json(tp_file *F, const char *text, size_t length, size_t flags, json_error_t *e);

/* Fill F from a file in their format. F fails if anything in the file is wrong. */
void tp__file_header(tp_file *F); /* safetensors */
void tp__file_torch_zip(tp_file *F, struct tp_zip *z);
void tp__file_npy(tp_file *F);
void tp__file_npz(tp_file *F, struct tp_zip *z);
void tp__file_torch_legacy(tp_file *F);
void tp__file_shards(tp_file *F);

#endif
