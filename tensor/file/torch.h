/* torch.h - shared by the readers of torch.save's two containers: a pickle whose persistent ids are
 * storages, and tensors that are views of the storages (torch.c). */
#ifndef TP_TORCH_H
#define TP_TORCH_H

#include "tensor/file/open.h"
#include "tensor/file/pickle.h"

#define TP_TORCH_AGAIN "; the file is damaged: copy or download it again"

/* A storage. Its id is ("storage", class, key, device, size). The legacy format adds None, or (key,
 * offset, size) of a view. Sizes and offsets count elements, or bytes if untyped. */
typedef struct tp_storage {
    const char *key;
    const tp_stored *stored; /* NULL: untyped, or of another class */
    const char *other;       /* that class; its bytes are unknown */
    size_t bytes, found;     /* in the pickle, in the archive */
    int fd;                  /* -1: not found yet, or not as described */
    size_t from;
    bool doubtful; /* it has two sizes or dtypes in the pickle */
} tp_storage;

typedef struct tp_torch {
    tp_file *F;
    tp_pickle *p;
    tp_storage *storages; /* sorted by key */
    size_t n;
    size_t pickled; /* bytes of the pickle */
    size_t taken;   /* approximate bytes taken by its names and values */
} tp_torch;

/* Whether a checkpoint may name this class or function (torch_names.c). */
bool tp__torch_allows(const char *name);

#define TP_TORCH_UNTYPED "torch.storage.UntypedStorage" /* its size is in bytes */

/* The dtype of that name or storage class; NULL: not supported. */
const tp_stored *tp__torch_stored(const char *name);

/* Why tensors of this function cannot be read, with advice: "is sparse; ..."; NULL: they can. */
const char *tp__torch_unreadable(const char *callee);

/* The value of the next pickle. NULL with F failed. */
const tp_pickle_value *tp__torch_next(tp_torch *C);

/* Lists all distinct storages that the pickles refer to; their locations are not known yet. */
void tp__torch_storages(tp_torch *C);
tp_storage *tp__torch_storage(const tp_torch *C, const char *key); /* NULL: none */

/* Adds the tensors, numbers and texts of a value to F, after all storages have been located. */
void tp__torch_add(tp_torch *C, const tp_pickle_value *root);

#endif
