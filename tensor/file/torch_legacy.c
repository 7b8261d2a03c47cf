/* torch_legacy.c - reads what torch.save wrote before 2020, and still writes on request: pickles
 * one after another, followed by the data.
 *
 *     magic number, 1001, a description of the system, the object, the list of storage keys
 *     for each key: 8 bytes with its number of elements, and the elements */
#include <stdlib.h>
#include <string.h>

#include "tensor/file/torch.h"

/* Locates the data of the storages, which follow the pickles in the order of the keys. */
static void place_legacy(tp_torch *C, const tp_pickle_value *keys, int fd, size_t at, size_t size)
{
    for (size_t i = 0; i < keys->n && tp_file_ok(C->F); i++) {
        const tp_pickle_value *key = keys->at[i];
        tp_storage *s = key->kind == TP_PICKLE_TEXT ? tp__torch_storage(C, key->text) : NULL;
        uint64_t numel;
        if (s && s->other) {
            tp__file_fail(
                C->F, TP_E_IO,
                "has a storage of the unknown class '%.100s', after which nothing can be found; save "
                "the file anew, without _use_new_zipfile_serialization=False",
                s->other);
        } else if (!s || s->fd >= 0) {
            tp__file_fail(C->F, TP_E_IO,
                          "the list of storages does not fit the pickle" TP_TORCH_AGAIN);
        } else if (tp_file_bytes(fd, (int64_t)at, &numel, sizeof numel) != sizeof numel ||
                   numel != s->bytes / (s->stored ? s->stored->size : 1) ||
                   s->bytes > size - at - sizeof numel) {
            tp__file_fail(
                C->F, TP_E_IO,
                "the data of storage '%.200s' are cut off or damaged at offset %zu" TP_TORCH_AGAIN,
                s->key, at);
        } else {
            s->fd = fd;
            s->from = at + sizeof numel;
            at = s->from + s->bytes;
        }
    }
}

#define MAGIC "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"

static void check_preface(tp_torch *C)
{
    const tp_pickle_value *magic = tp__torch_next(C);
    if (!magic) return;
    if (!tp__pickle_is(magic, TP_PICKLE_TEXT, MAGIC)) {
        tp__file_fail(C->F, TP_E_IO, "is a pickle, but not one of torch.save");
        return;
    }
    const tp_pickle_value *version = tp__torch_next(C),
                          *system = version ? tp__torch_next(C) : NULL;
    const tp_pickle_value *little = system ? tp__pickle_find(system, "little_endian") : NULL;
    if (!system) return;
    if (version->kind != TP_PICKLE_INT || version->whole != 1001)
        tp__file_fail(C->F, TP_E_IO, "the version of the format is not 1001" TP_TORCH_AGAIN);
    else if (little && little->kind == TP_PICKLE_BOOL && !little->whole)
        tp__file_fail(C->F, TP_E_IO, "was written by a big-endian machine; convert it there");
}

void tp__file_torch_legacy(tp_file *F)
{
    tp_torch C = { .F = F };
    C.p = tp__pickle_new(F->fd, 0, F->size, tp__torch_allows);
    check_preface(&C);
    const tp_pickle_value *root = tp_file_ok(F) ? tp__torch_next(&C) : NULL;
    const tp_pickle_value *keys = root ? tp__torch_next(&C) : NULL;
    C.pickled = keys ? tp__pickle_offset(C.p) : 0;
    if (keys) tp__torch_storages(&C);
    if (keys && keys->kind != TP_PICKLE_LIST)
        tp__file_fail(F, TP_E_IO, "the list of storages is missing" TP_TORCH_AGAIN);
    if (keys && tp_file_ok(F)) place_legacy(&C, keys, F->fd, tp__pickle_offset(C.p), F->size);
    if (keys && tp_file_ok(F)) tp__torch_add(&C, root);
    tp__pickle_free(C.p);
    free(C.storages);
}
