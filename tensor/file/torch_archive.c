/* torch_archive.c - the two file formats of torch.save: where the pickle and the elements are. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/file/torch.h"
#include "tensor/file/zip.h"

/* Reads the format of torch.save since 2020, a ZIP archive:
 *
 *     NAME/data.pkl       the pickle
 *     NAME/byteorder      "little" or "big"; not in older files
 *     NAME/data/KEY       the elements of each storage
 *
 * PyTorch compresses nothing, so tensors are read in place from the archive. */
enum { NAME = 1024 };

/* The pickle's entry; sets prefix to its folder, including the '/'. */
static tp_zip_entry *find_pickle(tp_torch *C, tp_zip *z, char prefix[NAME])
{
    for (size_t i = 0; i < z->n; i++) {
        const char *slash = strchr(z->at[i].name, '/');
        if (!slash || strcmp(slash, "/data.pkl") != 0) continue;
        memcpy(prefix, z->at[i].name, (size_t)(slash + 1 - z->at[i].name));
        prefix[slash + 1 - z->at[i].name] = 0;
        return &z->at[i];
    }
    tp__file_fail(C->F, TP_E_IO,
                  "is a ZIP archive without a data.pkl and without .npy files; give a file that "
                  "torch.save or numpy.savez has written");
    return NULL;
}

/* Finds the entry of a storage and marks it as wanted. NULL if it is missing or has another size:
 * the tensors in it cannot be read, others can. */
static tp_zip_entry *want_storage(tp_zip *z, const char *prefix, tp_storage *s)
{
    char name[2 * NAME];
    const int n = snprintf(name, sizeof name, "%sdata/%s", prefix, s->key);
    tp_zip_entry *e = n > 0 && (size_t)n < sizeof name ? tp__zip_find(z, name) : NULL;
    s->found = e ? e->size : 0;
    if (!e || s->other || e->size != s->bytes) return NULL;
    e->wanted = true;
    return e;
}

static void place_storages(tp_torch *C, tp_zip *z, const char *prefix, int fd)
{
    int unpacked;
    for (size_t i = 0; i < C->n; i++) want_storage(z, prefix, &C->storages[i]);
    if (!tp__zip_place(C->F, z, &unpacked)) return;
    for (size_t i = 0; i < C->n; i++) {
        const tp_zip_entry *e = want_storage(z, prefix, &C->storages[i]);
        if (!e) continue;
        C->storages[i].fd = e->unpacked ? unpacked : fd;
        C->storages[i].from = (size_t)e->from;
    }
}

static void check_byte_order(tp_torch *C, const tp_zip *z, const char *prefix, int fd)
{
    char name[NAME + 16], order[8] = "";
    snprintf(name, sizeof name, "%sbyteorder", prefix);
    const tp_zip_entry *e = tp__zip_find(z, name);
    if (e && e->from >= 0 && e->size < sizeof order &&
        tp_read_bytes(fd, e->from, order, e->size) == e->size && strcmp(order, "big") == 0)
        tp__file_fail(C->F, TP_E_IO, "was written by a big-endian machine; convert it there");
}

static void read_archive(tp_torch *C, tp_zip *z, int fd)
{
    char prefix[NAME];
    int unpacked;
    tp_zip_entry *e = find_pickle(C, z, prefix);
    if (!e) return;
    check_byte_order(C, z, prefix, fd);
    e->wanted = true;
    if (!tp__zip_place(C->F, z, &unpacked)) return;
    C->pickled = e->size;
    C->p = tp__pickle_new(e->unpacked ? unpacked : fd, (size_t)e->from, (size_t)e->from + e->size,
                          tp__torch_allows);
    const tp_pickle_value *root = tp__torch_next(C);
    if (root) tp__torch_storages(C);
    if (tp_file_ok(C->F)) place_storages(C, z, prefix, fd);
    if (tp_file_ok(C->F)) tp__torch_add(C, root);
    tp__pickle_free(C->p);
}

void tp__file_torch_zip(tp_file *F, tp_zip *z)
{
    tp_torch C = { .F = F };
    read_archive(&C, z, F->fd);
    free(C.storages);
}

/* Reads the format of torch.save before 2020, still written on request: consecutive pickles, then
 * the data.
 *
 *     magic number, 1001, a description of the system, the object, the list of storage keys
 *     for each key: 8 bytes with its number of elements, and the elements
 *
 * place_legacy locates the data, which follow the pickles in the order of the keys. */
static void place_legacy(tp_torch *C, const tp_pickle_value *keys, int fd, size_t at, size_t size)
{
    for (size_t i = 0; i < keys->n && tp_file_ok(C->F); i++) {
        const tp_pickle_value *key = keys->at[i];
        tp_storage *s = key->kind == TP_PICKLE_TEXT ? tp__torch_storage(C, key->text) : NULL;
        uint64_t numel;
        if (s && s->other) {
            tp__file_fail(
                C->F, TP_E_IO,
                "has a storage of the unknown class '%.100s', after which nothing can be found; "
                "save the file anew, without _use_new_zipfile_serialization=False",
                s->other);
        } else if (!s || s->fd >= 0) {
            tp__file_fail(C->F, TP_E_IO,
                          "the list of storages does not fit the pickle" TP_TORCH_AGAIN);
        } else if (tp_read_bytes(fd, (int64_t)at, &numel, sizeof numel) != sizeof numel ||
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
