/* npy_write.c - writes arrays in NumPy's formats: one .npy, or a .npz, a ZIP archive of several.
 *
 *     local header, array     for each: name, CRC-32, sizes; npy.c has the layout of an array
 *     central directory       the same again, with the offsets of the local headers
 *     its end                 as a ZIP64 record, a locator of that record, and the old record;
 *                             of no arrays the old record alone, by which readers know a ZIP
 *
 * Nothing is compressed. All sizes and offsets are in ZIP64's fields, so that archives above 4 GiB
 * and small ones are written by the same code. The sum of an array is known when it has been
 * written, and put into its local header then. bf16, which NumPy lacks, becomes f32. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/bf16.h"
#include "tensor/file/crc32.h"
#include "tensor/file/npy.h"
#include "tensor/file/npy_write.h"

enum { LOCAL = 30, ZIP64 = 20, CENTRAL = 46, CENTRAL64 = 28, END64 = 56, LOCATOR = 20, END = 22 };

typedef struct entry {
    const char *name;
    uint64_t at, bytes; /* of its local header; of the array with its text */
    uint32_t sum;
} entry;

struct tp_npy_file {
    bool zip;
    entry *entries;
    size_t n;
    uint64_t at; /* bytes written */
    tp_crc32 table;
    uint32_t sum;
};

tp_npy_file *tp__npy_file_new(const char *path, int arrays)
{
    tp_npy_file *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    f->zip = !tp_ends_in(path, ".npy");
    f->entries = calloc((size_t)arrays + 1, sizeof *f->entries);
    tp__crc32_init(&f->table);
    if (f->entries) return f;
    free(f);
    return NULL;
}

void tp__npy_file_free(tp_npy_file *f)
{
    if (f) free(f->entries);
    free(f);
}

static bool put(tp_npy_file *f, int fd, const void *data, size_t n)
{
    f->at += n;
    if (f->zip) f->sum = tp__crc32(&f->table, f->sum, data, n);
    return tp_write_bytes(fd, data, n);
}

/* Writes the low n bytes of x to *p, little endian, and moves *p behind them. */
static void number(unsigned char **p, uint64_t x, int n)
{
    for (int i = 0; i < n; i++) *(*p)++ = (unsigned char)(x >> 8 * i);
}

/* ---- an array ---- */

/* The text of an array's header with all before it. Its length is a multiple of 64, as NumPy's. */
static size_t text_of(char text[TP_NPY_TEXT], const tp_view *v)
{
    const tp_dtype dt = v->dtype == TP_BF16 ? TP_F32 : v->dtype;
    const char *kind = tp__npy_descr(tp__stored_as(dt)->name);
    size_t n = 10;
    memcpy(text, "\x93NUMPY\x01", 8);
    n += (size_t)snprintf(text + n, TP_NPY_TEXT - n,
                          "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                          tp_dtype_size(dt) > 1 ? '<' : '|', kind);
    for (int i = 0; i < v->ndim; i++)
        n += (size_t)snprintf(text + n, TP_NPY_TEXT - n, "%s%lld%s", i ? " " : "",
                              (long long)v->dim[i], i + 1 < v->ndim || i == 0 ? "," : "");
    n += (size_t)snprintf(text + n, TP_NPY_TEXT - n, "), }");
    const size_t all = (n + 1 + 63) / 64 * 64;
    memset(text + n, ' ', all - n);
    text[all - 1] = '\n';
    text[8] = (char)((all - 10) & 255);
    text[9] = (char)((all - 10) >> 8);
    return all;
}

/* The local header of an entry, with its name and ZIP64 field. */
static bool put_local(tp_npy_file *f, int fd, const entry *e)
{
    unsigned char b[LOCAL] = { 0 }, field[ZIP64], *p = b;
    const size_t length = strlen(e->name) + 4;
    number(&p, 0x04034b50, 4);
    number(&p, 45, 2);      /* of ZIP64 */
    number(&p, 1 << 11, 2); /* names are UTF-8 */
    number(&p, 0, 2);
    number(&p, 0x00210000, 4); /* 1 January 1980: two runs write the same bytes */
    number(&p, e->sum, 4);
    number(&p, UINT64_MAX, 8);
    number(&p, length, 2);
    number(&p, ZIP64, 2);
    p = field;
    number(&p, 1, 2);
    number(&p, ZIP64 - 4, 2);
    number(&p, e->bytes, 8);
    number(&p, e->bytes, 8);
    return put(f, fd, b, sizeof b) && put(f, fd, e->name, length - 4) && put(f, fd, ".npy", 4) &&
           put(f, fd, field, sizeof field);
}

bool tp__npy_begin(tp_npy_file *f, int fd, const char *name, const tp_view *v)
{
    char text[TP_NPY_TEXT];
    const size_t n = text_of(text, v);
    const size_t size = v->dtype == TP_BF16 ? sizeof(float) : tp_dtype_size(v->dtype);
    entry *e = &f->entries[f->n++];
    *e = (entry){ .name = name, .at = f->at, .bytes = n + (uint64_t)v->numel * size };
    if (f->zip && !put_local(f, fd, e)) return false;
    f->sum = 0;
    return put(f, fd, text, n);
}

bool tp__npy_put(tp_npy_file *f, int fd, tp_dtype dt, const void *data, size_t n)
{
    enum { PIECE = 4096 };
    float wide[PIECE];
    const uint16_t *p = data;
    if (dt != TP_BF16) return put(f, fd, data, n);
    for (size_t left = n / sizeof *p, k; left > 0; left -= k, p += k) {
        k = left < PIECE ? left : PIECE;
        for (size_t i = 0; i < k; i++) wide[i] = tp__from_bf16(p[i]);
        if (!put(f, fd, wide, k * sizeof *wide)) return false;
    }
    return true;
}

bool tp__npy_end(tp_npy_file *f, int fd)
{
    entry *e = &f->entries[f->n - 1];
    unsigned char b[4], *p = b;
    e->sum = f->sum;
    number(&p, e->sum, 4);
    return !f->zip || (lseek(fd, (off_t)e->at + 14, SEEK_SET) >= 0 && tp_write_bytes(fd, b, 4) &&
                       lseek(fd, (off_t)f->at, SEEK_SET) >= 0);
}

/* ---- the directory ---- */

static bool put_central(tp_npy_file *f, int fd, const entry *e)
{
    unsigned char b[CENTRAL] = { 0 }, field[CENTRAL64], *p = b;
    const size_t length = strlen(e->name) + 4;
    number(&p, 0x02014b50, 4);
    number(&p, 45 | 3 << 8, 2); /* made by Unix */
    number(&p, 45, 2);
    number(&p, 1 << 11, 2);
    number(&p, 0, 2);
    number(&p, 0x00210000, 4);
    number(&p, e->sum, 4);
    number(&p, UINT64_MAX, 8);
    number(&p, length, 2);
    number(&p, CENTRAL64, 2);
    p = b + 38;
    number(&p, UINT32_C(0100644) << 16, 4); /* a file that its owner may write */
    number(&p, UINT32_MAX, 4);
    p = field;
    number(&p, 1, 2);
    number(&p, CENTRAL64 - 4, 2);
    number(&p, e->bytes, 8);
    number(&p, e->bytes, 8);
    number(&p, e->at, 8);
    return put(f, fd, b, sizeof b) && put(f, fd, e->name, length - 4) && put(f, fd, ".npy", 4) &&
           put(f, fd, field, sizeof field);
}

bool tp__npy_finish(tp_npy_file *f, int fd)
{
    unsigned char b[END64 + LOCATOR + END] = { 0 }, *p = b;
    const uint64_t begin = f->at;
    if (!f->zip) return true;
    for (size_t i = 0; i < f->n; i++)
        if (!put_central(f, fd, &f->entries[i])) return false;
    const uint64_t end = f->at;
    if (f->n == 0) {
        number(&p, 0x06054b50, 4);
        return put(f, fd, b, END);
    }
    number(&p, 0x06064b50, 4);
    number(&p, END64 - 12, 8);
    number(&p, 45 | 3 << 8, 2);
    number(&p, 45, 2);
    number(&p, 0, 8); /* this disk, the directory's */
    number(&p, f->n, 8);
    number(&p, f->n, 8);
    number(&p, end - begin, 8);
    number(&p, begin, 8);
    number(&p, 0x07064b50, 4);
    number(&p, 0, 4);
    number(&p, end, 8);
    number(&p, 1, 4);
    number(&p, 0x06054b50, 4);
    number(&p, 0, 4);
    number(&p, UINT32_MAX, 4); /* entries here and in all: 0xffff each */
    number(&p, UINT64_MAX, 8);
    return put(f, fd, b, sizeof b);
}
