/* torch.h - shared by the readers of torch.save's two containers: a pickle whose persistent ids are
 * storages, and tensors that are views of the storages (torch.c). */
#ifndef TP_TORCH_H
#define TP_TORCH_H

#include "tensor/file/open.h"
#include "tensor/file/pickle.h"

#define TP_TORCH_AGAIN "; the file is damaged: copy or download it again"

/* A storage. Its id is ("storage", class, key, device, size). The legacy format adds None, or (key,
 * offset, size) of a view of the storage. Sizes and offsets count elements, or bytes if untyped. */
typedef struct tp_storage {
    const char *key;
    const tp_stored *stored; /* NULL: untyped */
    size_t bytes;
    int fd; /* -1: not found yet */
    size_t from;
} tp_storage;

typedef struct tp_torch {
    tp_file *F;
    tp_pickle *p;
    tp_storage *storages; /* sorted by key */
    size_t n;
    size_t visited; /* values visited */
} tp_torch;

/* Whether a checkpoint may name this class or function. */
bool tp__torch_allows(const char *name);

/* The value of the next pickle. NULL with F failed. */
const tp_pickle_value *tp__torch_next(tp_torch *C);

/* Lists all storages that the pickles refer to, each once; their locations are not known yet. */
void tp__torch_storages(tp_torch *C);
tp_storage *tp__torch_storage(const tp_torch *C, const char *key); /* NULL: none */

/* Adds the tensors, numbers and texts of a value to F, after all storages have been located. */
void tp__torch_add(tp_torch *C, const tp_pickle_value *root);

#endif
