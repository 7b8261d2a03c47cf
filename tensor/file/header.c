/* header.c - the header of a safetensors file. Every length, name, dtype, shape and offset is
 * checked before the file is used, so that a damaged or hostile file gives an error text, never a
 * read out of bounds. Layout: inner.h. */
#include <stdlib.h>
#include <string.h>

#include "tensor/file/inner.h"
#include "tensor/file/open.h"

/* ---- dtypes ---- */

/* The dtypes of safetensors, then those found only in PyTorch's files. */
static const tp_stored table[] = {
    { "F64", 8, TP_STORED_FLOAT, TP_F64 },         { "F32", 4, TP_STORED_FLOAT, TP_F32 },
    { "BF16", 2, TP_STORED_FLOAT, TP_BF16 },       { "F16", 2, TP_STORED_FLOAT, TP_NDTYPES },
    { "I64", 8, TP_STORED_INT, TP_I64 },           { "I32", 4, TP_STORED_INT, TP_I32 },
    { "I16", 2, TP_STORED_INT, TP_NDTYPES },       { "I8", 1, TP_STORED_INT, TP_NDTYPES },
    { "U64", 8, TP_STORED_INT, TP_NDTYPES },       { "U32", 4, TP_STORED_INT, TP_NDTYPES },
    { "U16", 2, TP_STORED_INT, TP_NDTYPES },       { "U8", 1, TP_STORED_INT, TP_U8 },
    { "BOOL", 1, TP_STORED_INT, TP_NDTYPES },      { "C64", 8, TP_STORED_OTHER, TP_NDTYPES },
    { "F8_E4M3", 1, TP_STORED_OTHER, TP_NDTYPES }, { "F8_E5M2", 1, TP_STORED_OTHER, TP_NDTYPES },
    { "F8_E8M0", 1, TP_STORED_OTHER, TP_NDTYPES }, { "C128", 16, TP_STORED_OTHER, TP_NDTYPES },
    { "QI8", 1, TP_STORED_OTHER, TP_NDTYPES },     { "QU8", 1, TP_STORED_OTHER, TP_NDTYPES },
    { "QI32", 4, TP_STORED_OTHER, TP_NDTYPES },
};

const tp_stored *tp__stored(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

const tp_stored *tp__stored_as(tp_dtype dt)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].dt == dt) return &table[i];
    return NULL;
}

#define AGAIN TP_FILE_AGAIN
#define OTHER                                                                                      \
    "; this is neither a safetensors file nor one of torch.save, or its beginning is damaged: "    \
    "give another file, or copy or download it again"

#define bad(F, ...) tp__file_fail(F, TP_E_IO, __VA_ARGS__)

/* The length of the JSON text, or 0 with F failed. */
static size_t header_length(tp_file *F)
{
    unsigned char first[9] = { 0 };
    uint64_t n = 0;
    if (!tp__file_at(F, 0, first, F->size > 8 ? 9 : 8)) return 0;
    memcpy(&n, first, sizeof n);
    if (n == 0)
        bad(F, "the header length (bytes 0 to 7) is 0" OTHER);
    else if (n > F->size - 8)
        bad(F, "the header length (bytes 0 to 7) is %llu, but only %llu bytes follow" OTHER,
            (unsigned long long)n, (unsigned long long)(F->size - 8));
    else if (n > TP_FILE_HEADER_MAX)
        bad(F, "the header length (bytes 0 to 7) is %llu, more than the %d allowed" OTHER,
            (unsigned long long)n, TP_FILE_HEADER_MAX);
    else if (first[8] != '{')
        bad(F, "the header does not begin with '{' but with byte 0x%02x, at offset 8" OTHER,
            first[8]);
    return tp_file_ok(F) ? (size_t)n : 0;
}

/* ---- the header ---- */

/* Keeps only text metadata. Files of other programs also have other values, unrelated to
 * tensors. */

static json_t *only_texts(json_t *meta)
{
    const char *key;
    void *next;
    json_t *value;
    json_object_foreach_safe(meta, next, key, value)
    {
        if (!json_is_string(value)) json_object_del(meta, key);
    }
    return json_is_object(meta) ? meta : NULL;
}

static bool natural(const json_t *j, uint64_t *x)
{
    *x = (uint64_t)json_integer_value(j);
    return json_is_integer(j) && json_integer_value(j) >= 0;
}

static void parse_shape(tp_file *F, const json_t *j, tp_file_slot *slot)
{
    const size_t n = json_array_size(j);
    tp_shape shape = { .ndim = n > TP_MAX_DIMS ? 0 : (int)n };
    if (!json_is_array(j)) tp__file_spoil(F, slot, TP_E_IO, "has no shape" AGAIN);
    if (n > TP_MAX_DIMS)
        tp__file_spoil(F, slot, TP_E_DTYPE, "has %zu axes; at most %d are supported: reshape it", n,
                       TP_MAX_DIMS);
    for (int i = 0; i < shape.ndim; i++) {
        uint64_t dim;
        if (!natural(json_array_get(j, (size_t)i), &dim))
            tp__file_spoil(F, slot, TP_E_IO,
                           "has an axis %d that is not a whole number from 0 on" AGAIN, i);
        shape.dim[i] = (int64_t)dim;
    }
    if (slot->tensor.code == TP_OK && !tp__numel(&shape, &slot->tensor.numel))
        tp__file_spoil(F, slot, TP_E_IO, "has more elements than can be counted" AGAIN);
    if (slot->tensor.code == TP_OK) slot->tensor.shape = shape;
}

/* A tensor beyond the end of the file fails F: the file is cut off, other tensors perhaps too. */
static void parse_offsets(tp_file *F, const json_t *j, tp_file_slot *slot)
{
    uint64_t begin = 0, end = 0;
    tp_file_tensor *t = &slot->tensor;
    slot->placeless = true;
    if (json_array_size(j) != 2 || !natural(json_array_get(j, 0), &begin) ||
        !natural(json_array_get(j, 1), &end))
        tp__file_spoil(F, slot, TP_E_IO, "has no pair of data_offsets" AGAIN);
    else if (end > F->data_size)
        bad(F,
            "tensor '%.200s' is at offsets %llu to %llu of %llu bytes of data; the file is cut "
            "off: copy, download or write it again",
            t->name, (unsigned long long)begin, (unsigned long long)end,
            (unsigned long long)F->data_size);
    else if (begin > end)
        tp__file_spoil(F, slot, TP_E_IO, "is at offsets %llu to %llu of the data" AGAIN,
                       (unsigned long long)begin, (unsigned long long)end);
    else
        slot->placeless = false;
    if (slot->placeless) return;
    t->offset = (size_t)begin;
    t->bytes = (size_t)(end - begin);
    slot->from = F->data_from + t->offset;
}

/* Compares the bytes of a tensor with its dtype and shape. */
static void check_size(tp_file *F, const tp_stored *s, tp_file_slot *slot)
{
    size_t bytes;
    char shape[256] = "";
    tp_file_tensor *t = &slot->tensor;
    if (t->code != TP_OK || (tp__size_mul((size_t)t->numel, s->size, &bytes) && bytes == t->bytes))
        return;
    tp__print_shape(shape, sizeof shape, t->shape.ndim, t->shape.dim);
    tp__file_spoil(F, slot, TP_E_IO, "is %s%s but its offsets %zu to %zu hold %zu bytes" AGAIN,
                   t->stored, shape, t->offset, t->offset + t->bytes, t->bytes);
    slot->placeless = true;
    t->offset = t->bytes = 0;
}

/* Does this header entry describe a tensor? If not, it may be damaged metadata. */
static bool describes(const json_t *j)
{
    return json_object_get(j, "dtype") || json_object_get(j, "shape") ||
           json_object_get(j, "data_offsets");
}

static void parse_tensor(tp_file *F, const char *name, const json_t *j)
{
    if (!describes(j)) {
        bad(F, "'%.200s' in the header describes no tensor" AGAIN, name);
        return;
    }
    const char *dtype = json_string_value(json_object_get(j, "dtype"));
    const tp_stored *s = dtype ? tp__stored(dtype) : NULL;
    tp_file_slot *slot = tp__file_append(F, name, false);
    if (!slot) return;
    if (s)
        slot->tensor.stored = s->name;
    else if (dtype)
        tp__file_stored(F, slot, dtype);
    parse_shape(F, json_object_get(j, "shape"), slot);
    parse_offsets(F, json_object_get(j, "data_offsets"), slot);
    if (!dtype) tp__file_spoil(F, slot, TP_E_IO, "has no dtype" AGAIN);
    if (!s)
        tp__file_spoil(F, slot, TP_E_DTYPE,
                       "has the unknown dtype '%.32s'; convert it to F32 or BF16", dtype);
    if (s) check_size(F, s, slot);
}

/* ---- checksums ---- */

#define KEPT                                                                                       \
    "; the file is damaged, or a program has changed it and kept the checksums: take the last "    \
    "good checkpoint, or leave out the metadata '" TP_SUM_HEADER "' and '" TP_SUM_TENSORS "'"

/* Verifies the header's checksum, if any, and prepares to verify those of the tensors. */
static void check_header(tp_file *F, const char *text, size_t length)
{
    const json_t *meta = json_object_get(F->root, "__metadata__");
    const bool header = json_object_get(meta, TP_SUM_HEADER) != NULL;
    const char *tensors = json_string_value(json_object_get(meta, TP_SUM_TENSORS));
    uint64_t stated;
    if (!header && !json_object_get(meta, TP_SUM_TENSORS)) return;
    if (!header || !tensors || length < TP_SUMS_AT || memcmp(text, TP_SUM_BEGIN, TP_SUM_AT) != 0 ||
        !tp__sum_scan(text + TP_SUM_AT, &stated)) {
        bad(F, "the checksum of the header is not in its place" KEPT);
        return;
    }
    F->sum = tp__sum_new();
    if (!F->sum) {
        tp__file_fail(F, TP_E_MEMORY, "out of memory for checksums");
        return;
    }
    const uint64_t is = tp__sum_header(F->sum, text, length);
    if (is != stated)
        bad(F, "the checksum of the header is %016llx, the file says %016llx" KEPT,
            (unsigned long long)is, (unsigned long long)stated);
}

/* Moves the tensors' checksums from the metadata, which programs see, to the list of tensors. */
static void take_sums(tp_file *F)
{
    if (!F->sum || !tp_file_ok(F)) return;
    const char *digits = json_string_value(json_object_get(F->meta, TP_SUM_TENSORS));
    bool all = strlen(digits) == TP_SUM_DIGITS * (size_t)F->n;
    for (int i = 0; all && i < F->n; i++)
        all = tp__sum_scan(digits + TP_SUM_DIGITS * i, &F->at[i].sum);
    F->has_sums = true;
    if (!all) bad(F, "it does not have %d checksums for %d tensors" KEPT, F->n, F->n);
    json_object_del(F->meta, TP_SUM_HEADER);
    json_object_del(F->meta, TP_SUM_TENSORS);
}

static void parse_json(tp_file *F, size_t length)
{
    json_error_t e;
    char *text = malloc(length);
    if (!text) {
        tp__file_fail(F, TP_E_MEMORY, "out of memory for the %zu bytes of the header", length);
        return;
    }
    if (tp__file_at(F, 8, text, length)) {
        F->root = tp__file_json(F, text, length, JSON_REJECT_DUPLICATES, &e);
        if (!F->root)
            bad(F, "the header is not valid JSON at offset %d: %s" AGAIN, e.position + 8,
                tp_json_reason(e.text));
        else
            check_header(F, text, length);
    }
    free(text);
}

static bool parse_header(tp_file *F, size_t length)
{
    parse_json(F, length);
    if (!tp_file_ok(F)) return false;
    const char *name;
    json_t *j, *meta = json_object_get(F->root, "__metadata__");
    F->meta = only_texts(meta);
    json_object_foreach(F->root, name, j)
    {
        if (j != meta && tp_file_ok(F)) parse_tensor(F, name, j);
    }
    return tp_file_ok(F);
}

/* ---- order ---- */

static int by_offset(const void *pa, const void *pb)
{
    const tp_file_tensor *a = &((const tp_file_slot *)pa)->tensor,
                         *b = &((const tp_file_slot *)pb)->tensor;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Sorts the tensors and checks that they fill the data without gap or overlap. Tensors with damaged
 * offsets, which come first, leave gaps. */
static void check_order(tp_file *F)
{
    size_t end = 0;
    bool gaps = false;
    if (F->n) qsort(F->at, (size_t)F->n, sizeof *F->at, by_offset); /* at is NULL if n is 0 */
    for (int i = 0; i < F->n; i++) {
        const tp_file_tensor *t = &F->at[i].tensor;
        gaps = gaps || F->at[i].placeless;
        if (t->offset < end)
            bad(F, "tensors '%.200s' and '%.200s' overlap at offset %zu of the data" AGAIN,
                F->at[i - 1].tensor.name, t->name, t->offset);
        if (t->offset > end && !gaps)
            bad(F,
                "offsets %zu to %zu of the data, before tensor '%.200s', belong to no tensor" AGAIN,
                end, t->offset, t->name);
        end = t->offset + t->bytes;
    }
    if (end != F->data_size && !gaps)
        bad(F, "offsets %zu to %zu, the end of the data, belong to no tensor" AGAIN, end,
            F->data_size);
}

void tp__file_header(tp_file *F)
{
    const size_t header = header_length(F);
    if (!header) return;
    F->data_from = 8 + header;
    F->data_size = F->size - 8 - header;
    if (parse_header(F, header)) check_order(F);
    take_sums(F);
}
