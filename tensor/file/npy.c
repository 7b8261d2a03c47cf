/* npy.c - reads NumPy's files: .npy, one array, and .npz, a ZIP archive of them.
 *
 *     93 "NUMPY" major minor      the format, 1.0 to 3.0
 *     length                      of the text that follows: 2 bytes in 1.0, else 4, little endian
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }    blanks and a newline
 *     the elements
 *
 * The text is a literal of Python; only what NumPy writes into it is understood. Bytes of
 * big-endian numbers are swapped when elements are read (content.c), and columns of arrays in
 * Fortran's order are gathered there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/file/npy.h"
#include "tensor/file/open.h"
#include "tensor/file/zip.h"

#define AGAIN "; write the file again with numpy.save or numpy.savez"

/* What the text says. The name of a dtype is cut off: none that can be read is long. */
typedef struct header {
    char descr[16];
    bool structured; /* descr is a list */
    bool fortran;
    tp_shape shape;
    int64_t axes; /* more than the shape has: it is cut off */
    int seen;     /* bit k: the k-th of the three keys */
} header;

/* ---- the literal ---- */

typedef struct reader {
    const char *p;    /* the text, which ends with a zero byte */
    const char *want; /* what was expected at p, once something is wrong */
} reader;

static bool fail(reader *r, const char *want)
{
    if (!r->want) r->want = want;
    return false;
}

static bool next_is(reader *r, char c)
{
    r->p += strspn(r->p, " \n\t");
    if (*r->p != c) return false;
    r->p++;
    return true;
}

/* A text in quotes, without escapes. */
static bool read_text(reader *r, char *text, size_t size)
{
    const char quote = next_is(r, '\'') ? '\'' : next_is(r, '"') ? '"' : '\0';
    const char *end = quote ? strchr(r->p, quote) : NULL;
    if (!end) return fail(r, "a text in quotes");
    snprintf(text, size, "%.*s", (int)(end - r->p), r->p);
    r->p = end + 1;
    return true;
}

static bool read_bool(reader *r, bool *value)
{
    r->p += strspn(r->p, " \n\t");
    *value = strncmp(r->p, "True", 4) == 0;
    if (!*value && strncmp(r->p, "False", 5) != 0) return fail(r, "True or False");
    r->p += *value ? 4 : 5;
    return true;
}

/* A size; Python 2 may have put an L behind it. */
static bool read_size(reader *r, int64_t *n)
{
    *n = 0;
    r->p += strspn(r->p, " \n\t");
    if (*r->p < '0' || *r->p > '9') return fail(r, "a size, a number that is not negative");
    for (; *r->p >= '0' && *r->p <= '9'; r->p++)
        if (__builtin_mul_overflow(*n, 10, n) || __builtin_add_overflow(*n, *r->p - '0', n))
            return fail(r, "a size below 2^63");
    if (*r->p == 'L') r->p++;
    return true;
}

/* (), (3,), (2, 3) */
static bool read_shape(reader *r, header *h)
{
    int64_t size;
    if (!next_is(r, '(')) return fail(r, "a shape in parentheses");
    while (!next_is(r, ')')) {
        if (!read_size(r, &size)) return false;
        if (h->axes++ < TP_MAX_DIMS) h->shape.dim[h->shape.ndim++] = size;
        if (!next_is(r, ',')) return next_is(r, ')') || fail(r, "a comma or the end of the shape");
    }
    return true;
}

/* The fields of a structured dtype, which may nest: up to the bracket that ends them. */
static bool skip_list(reader *r)
{
    int depth = 0;
    do {
        char text[16];
        r->p += strcspn(r->p, "[]'\"");
        if (*r->p == '\0') return fail(r, "the end of the list of fields");
        if (*r->p == '[' || *r->p == ']')
            depth += *r->p++ == '[' ? 1 : -1;
        else if (!read_text(r, text, sizeof text))
            return false;
    } while (depth > 0);
    return true;
}

static bool read_value(reader *r, header *h, int key)
{
    if (key == 1) return read_bool(r, &h->fortran);
    if (key == 2) return read_shape(r, h);
    r->p += strspn(r->p, " \n\t");
    h->structured = *r->p == '[';
    return h->structured ? skip_list(r) : read_text(r, h->descr, sizeof h->descr);
}

static bool read_dict(reader *r, header *h)
{
    static const char *const keys[] = { "descr", "fortran_order", "shape" };
    char name[16];
    *h = (header){ .seen = 0 };
    if (!next_is(r, '{')) return fail(r, "a dictionary");
    while (!next_is(r, '}')) {
        int k = 0;
        const char *at = r->p;
        if (!read_text(r, name, sizeof name)) return false;
        while (k < 3 && strcmp(keys[k], name) != 0) k++;
        if (k == 3 || h->seen >> k & 1) {
            r->p = at;
            return fail(r, "one each of 'descr', 'fortran_order' and 'shape'");
        }
        h->seen |= 1 << k;
        if (!next_is(r, ':')) return fail(r, "a colon");
        if (!read_value(r, h, k)) return false;
        if (!next_is(r, ',') && strspn(r->p, " \n\t}") == 0) return fail(r, "a comma");
    }
    r->p += strspn(r->p, " \n\t");
    if (*r->p) return fail(r, "nothing after the dictionary");
    return h->seen == 7 || fail(r, "'descr', 'fortran_order' and 'shape'");
}

/* ---- dtypes ---- */

static const struct {
    const char *kind; /* the dtype of NumPy without its byte order */
    const char *stored;
} known[] = { { "f4", "F32" }, { "f8", "F64" }, { "f2", "F16" }, { "i8", "I64" },
              { "i4", "I32" }, { "i2", "I16" }, { "i1", "I8" },  { "u8", "U64" },
              { "u4", "U32" }, { "u2", "U16" }, { "u1", "U8" },  { "b1", "BOOL" } };

const char *tp__npy_descr(const char *stored)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].stored, stored) == 0) return known[i].kind;
    return NULL;
}

/* NULL: none that can be read. '=' is this machine's order, which inner.h checks. */
static const tp_stored *stored_of(const char *descr, bool *swapped)
{
    *swapped = *descr == '>';
    if (!strchr("<>|=", *descr) || !*descr) return NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].kind, descr + 1) == 0) return tp__stored(known[i].stored);
    return NULL;
}

static const char *advice(const header *h)
{
    if (h->structured) return "; save its fields as arrays of their own";
    switch (h->descr[0] ? h->descr[1] : 'O') {
    case 'O': return "; save numbers: a.astype('float32')";
    case 'c': return "; save a.real and a.imag";
    case 'U':
    case 'S': return "; save numbers that stand for the texts";
    case 'M':
    case 'm': return "; save a.astype('int64')";
    default: return "; save a.astype('float32') or another dtype of numbers";
    }
}

/* ---- arrays ---- */

enum { TEXT = 10000 /* NumPy reads no longer ones either */ };

/* An array in a file: `size` bytes from offset `from` of fd. */
typedef struct place {
    int fd;
    size_t from, size;
} place;

/* Reads the text; false with t spoilt. *data: the elements' offset in the array. */
static bool read_header(tp_file *F, tp_file_slot *t, const place *a, header *h, size_t *data)
{
    unsigned char b[12] = { 0 };
    char text[TEXT + 1];
    const size_t got = a->size < sizeof b ? a->size : sizeof b;
    if (tp_read_bytes(a->fd, (int64_t)a->from, b, got) != got || got < 10 ||
        memcmp(b, "\x93NUMPY", 6) != 0) {
        tp__file_spoil(F, t, TP_E_IO,
                       "is damaged at offset %zu: \\x93NUMPY and a version are expected" AGAIN,
                       a->from);
        return false;
    }
    if (b[6] < 1 || b[6] > 3 || b[7] != 0) {
        tp__file_spoil(F, t, TP_E_DTYPE,
                       "has version %d.%d of NumPy's format at offset %zu; 1.0, 2.0 and 3.0 are "
                       "read" AGAIN,
                       b[6], b[7], a->from + 6);
        return false;
    }
    const size_t begin = b[6] == 1 ? 10 : 12;
    const size_t n =
        b[6] == 1 ? (size_t)b[8] | (size_t)b[9] << 8
                  : (size_t)b[8] | (size_t)b[9] << 8 | (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (n > TEXT || a->size < begin || n > a->size - begin) {
        tp__file_spoil(F, t, TP_E_IO,
                       "is damaged at offset %zu: its header of %zu bytes is longer than %s" AGAIN,
                       a->from + 8, n, n > TEXT ? "the 10000 that are read" : "the file");
        return false;
    }
    reader r = { .p = text };
    const size_t is = tp_read_bytes(a->fd, (int64_t)(a->from + begin), text, n);
    text[is] = '\0';
    if (is == n && read_dict(&r, h) && strlen(text) == n) {
        *data = begin + n;
        return true;
    }
    tp__file_spoil(F, t, TP_E_IO, "is damaged at offset %zu: %s is expected" AGAIN,
                   a->from + begin + (size_t)(r.p - text), r.want ? r.want : "text");
    return false;
}

/* The elements end with the array; t->from is where they begin. */
static void check_size(tp_file *F, tp_file_slot *t, size_t size)
{
    const size_t bytes = t->tensor.bytes;
    if (bytes == size) return;
    tp__file_spoil(F, t, TP_E_IO,
                   "has %zu bytes of elements from offset %zu on, its shape needs %zu%s", size,
                   t->from, bytes,
                   bytes > size ? "; the file is cut off: copy, download or write it again"
                                : "; several arrays in one .npy belong into one .npz: numpy.savez");
}

/* Adds an array under a name; NULL if it cannot be read. */
static tp_file_slot *add(tp_file *F, const char *name, place a)
{
    int64_t stride[TP_MAX_DIMS] = { 0 }, step = 1;
    header h;
    size_t data;
    bool swapped;
    tp_file_slot *t = tp__file_append(F, name, true);
    if (!t || !read_header(F, t, &a, &h, &data)) return NULL;
    const tp_stored *s = h.structured ? NULL : stored_of(h.descr, &swapped);
    if (!s) {
        tp__file_stored(F, t, h.structured ? "structured" : h.descr);
        tp__file_spoil(F, t, TP_E_DTYPE, "has NumPy's dtype %s, which is not read%s",
                       h.structured ? "with fields" : h.descr, advice(&h));
        return NULL;
    }
    if (h.axes > TP_MAX_DIMS) {
        tp__file_spoil(F, t, TP_E_DTYPE, "has %lld axes; at most %d are supported: reshape it",
                       (long long)h.axes, TP_MAX_DIMS);
        return NULL;
    }
    const tp_shape *shape = &h.shape;
    for (int i = 0; i < shape->ndim; i++) {
        const int axis = h.fortran ? i : shape->ndim - 1 - i;
        stride[axis] = step;
        if (__builtin_mul_overflow(step, shape->dim[axis], &step)) step = 0; /* refused below */
    }
    tp__file_place(F, t, s, shape, stride, a.fd, a.from + data);
    t->swapped = swapped && s->size > 1;
    if (t->tensor.code == TP_OK) check_size(F, t, a.size - data);
    return t->tensor.code == TP_OK ? t : NULL;
}

void tp__file_npy(tp_file *F)
{
    add(F, TP_NPY_NAME, (place){ F->fd, 0, F->size });
}

bool tp__file_is_npz(const tp_zip *z)
{
    bool any = false;
    for (size_t i = 0; i < z->n; i++) {
        any = any || tp_ends_in(z->at[i].name, ".npy");
        if (tp_ends_in(z->at[i].name, "/data.pkl")) return false;
    }
    return any;
}

/* NULL: F has failed. */
static tp_entry_sum *sum_of(tp_file *F, const tp_zip_entry *e)
{
    tp_entry_sum *s = malloc(sizeof *s);
    if (!s) {
        tp__file_fail(F, TP_E_MEMORY, "out of memory for its sums");
        return NULL;
    }
    *s = (tp_entry_sum){ (size_t)e->from, e->size, e->sum, false, F->entries };
    return F->entries = s;
}

void tp__file_npz(tp_file *F, tp_zip *z)
{
    int unpacked;
    for (size_t i = 0; i < z->n; i++) z->at[i].wanted = tp_ends_in(z->at[i].name, ".npy");
    if (!tp__zip_place(F, z, &unpacked)) return;
    tp__zip_sums(z);
    if (z->err.code != TP_OK) tp__file_fail(F, z->err.code, "%s", z->err.text);
    tp__zip_in_order(z);
    for (size_t i = 0; i < z->n && tp_file_ok(F); i++) {
        tp_zip_entry *e = &z->at[i];
        if (!e->wanted) continue;
        e->name[strlen(e->name) - strlen(".npy")] = '\0';
        const place a = { e->unpacked ? unpacked : F->fd, (size_t)e->from, e->size };
        tp_file_slot *t = add(F, e->name, a);
        if (t && e->has_sum) t->entry = sum_of(F, e);
        if (t && !e->unpacked) tp__file_count(F, t, "in entries that overlap" TP_FILE_AGAIN);
    }
}
