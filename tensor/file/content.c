/* content.c - reads the elements of a file's tensors, in the requested dtype, and verifies
 * checksums.
 *
 * Checksums (checksum.h) are verified before any data is returned: the header's when the file is
 * opened, a tensor's when any of its bytes are first read. A file may have none. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tensor/bf16.h"
#include "tensor/file/crc32.h"
#include "tensor/file/open.h"

#define GOOD "; copy or download the file again, or take the last good checkpoint"

#define bad(F, ...) tp__file_fail(F, TP_E_IO, __VA_ARGS__)

static bool read_at(tp_file *F, int fd, size_t from, void *to, size_t n)
{
    const size_t got = tp_read_bytes(fd, (int64_t)from, to, n);
    if (got == n) return true;
    if (errno)
        bad(F, "cannot be read at offset %zu (%s)", from + got, strerror(errno));
    else
        bad(F, "became shorter since it was opened: it ends at offset %zu of %zu" TP_FILE_AGAIN,
            from + got, F->size);
    return false;
}

bool tp__file_at(tp_file *F, size_t from, void *to, size_t n)
{
    return read_at(F, F->fd, from, to, n);
}

static tp_file_slot *slot_of(const tp_file_tensor *t)
{
    return (tp_file_slot *)t;
}

/* Reads a full tensor, also the rows of other processes, and verifies its checksum. Without a
 * destination the bytes go to a buffer, piece by piece. Pieces are small, so that the bytes are
 * still in the cache when summed. */
static bool read_checked(tp_file *F, tp_file_slot *s, void *to)
{
    enum { PIECE = 1 << 16 };
    char buffer[PIECE];
    const size_t from = s->from - s->before, bytes = s->before + s->tensor.bytes + s->after;
    tp__sum_begin(F->sum);
    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        char *p = to ? (char *)to + at : buffer;
        if (!read_at(F, s->fd, from + at, p, n)) return false;
        tp__sum_add(F->sum, p, n);
    }
    const uint64_t is = tp__sum_end(F->sum);
    s->is_checked = is == s->sum;
    if (!s->is_checked)
        bad(F, "tensor '%.200s' is damaged: its checksum is %016llx, the file says %016llx" GOOD,
            s->tensor.name, (unsigned long long)is, (unsigned long long)s->sum);
    return s->is_checked;
}

/* Compares the CRC-32 of the archive's entry that holds a tensor. */
static bool check_entry(tp_file *F, const tp_file_slot *s)
{
    enum { PIECE = 1 << 16 };
    char buffer[PIECE];
    tp_crc32 table;
    tp_entry_sum *e = s->entry;
    uint32_t is = 0;
    if (!e || e->is_checked) return true;
    tp__crc32_init(&table);
    for (size_t at = 0; at < e->size; at += PIECE) {
        const size_t n = e->size - at < PIECE ? e->size - at : PIECE;
        if (!read_at(F, s->fd, e->from + at, buffer, n)) return false;
        is = tp__crc32(&table, is, buffer, n);
    }
    e->is_checked = is == e->sum;
    if (!e->is_checked)
        bad(F,
            "tensor '%.200s' is damaged: its CRC-32 is %08" PRIx32
            ", the archive says %08" PRIx32 GOOD,
            s->tensor.name, is, e->sum);
    return e->is_checked;
}

/* Scattered elements are read by one of two ways, whichever needs fewer reads, and so at most one
 * read of at most WINDOW bytes for each element. ROOM: bytes read at once from a column. */
enum { WINDOW = 4096, ROOM = 1 << 20 };

/* The rows of a scattered tensor that are read at once, at least 1. */
static int64_t rows_at_once(const tp_file_tensor *t, size_t size)
{
    const int64_t columns = t->numel / t->shape.dim[0], fit = ROOM / (int64_t)size / columns;
    return fit > 1 ? fit : 1;
}

/* Reads elements `first` to first+n-1 in row-major order, of `size` bytes each, of an array whose
 * first axis is contiguous, [R,C] in memory as [C,R]: reads pieces of columns and turns them. Of
 * each column, as many rows are read at once as there is room for. */
static bool gather_columns(tp_file *F, const tp_file_slot *s, int64_t first, int64_t n, size_t size,
                           char *to)
{
    const tp_shape *shape = &s->tensor.shape;
    const int64_t rows = shape->dim[0], columns = s->tensor.numel / rows;
    const int64_t last = (first + n - 1) / columns, most = rows_at_once(&s->tensor, size);
    char *column = malloc((size_t)(most < rows ? most : rows) * size);
    bool ok = column != NULL;
    if (!ok) tp__file_fail(F, TP_E_MEMORY, "out of memory to turn tensor '%.200s'", s->tensor.name);
    for (int64_t row = first / columns, k; ok && row <= last; row += k) {
        k = last + 1 - row < most ? last + 1 - row : most;
        for (int64_t c = 0; ok && c < columns; c++) {
            int64_t rest = c, offset = row;
            for (int i = shape->ndim - 1; i > 0; i--) {
                offset += rest % shape->dim[i] * s->stride[i];
                rest /= shape->dim[i];
            }
            ok = read_at(F, s->fd, s->from + (size_t)offset * size, column, (size_t)k * size);
            for (int64_t r = 0; ok && r < k; r++) {
                const int64_t at = (row + r) * columns + c - first;
                if (at >= 0 && at < n)
                    memcpy(to + (size_t)at * size, column + (size_t)r * size, size);
            }
        }
    }
    free(column);
    return ok;
}

/* The same for any strides. Contiguous runs along the last axis are read at once; single elements
 * from a window of the file that begins with one of them and ends within the tensor. */
static bool gather(tp_file *F, const tp_file_slot *s, int64_t first, int64_t n, size_t size,
                   char *to)
{
    const tp_shape *shape = &s->tensor.shape;
    const int last = shape->ndim - 1;
    char window[WINDOW];
    int64_t begin = 0, end = 0, most = 1; /* of the window and of the tensor, in elements */
    for (int i = 0; i <= last; i++) most += (shape->dim[i] - 1) * s->stride[i];
    while (n > 0) {
        int64_t rest = first, offset = 0, column = rest % shape->dim[last];
        for (int i = last; i >= 0; i--) {
            offset += rest % shape->dim[i] * s->stride[i];
            rest /= shape->dim[i];
        }
        int64_t run = s->stride[last] == 1 ? shape->dim[last] - column : 1;
        if (run > n) run = n;
        if (run == 1 && (offset < begin || offset >= end)) {
            begin = offset;
            end = most - begin < WINDOW / (int64_t)size ? most : begin + WINDOW / (int64_t)size;
            if (!read_at(F, s->fd, s->from + (size_t)begin * size, window,
                         (size_t)(end - begin) * size))
                return false;
        }
        if (run == 1)
            memcpy(to, window + (size_t)(offset - begin) * size, size);
        else if (!read_at(F, s->fd, s->from + (size_t)offset * size, to, (size_t)run * size))
            return false;
        to += (size_t)run * size;
        first += run;
        n -= run;
    }
    return true;
}

/* Whether gather_columns needs fewer reads for these elements than gather. */
static bool by_columns(const tp_file_slot *s, int64_t first, int64_t n, size_t size)
{
    const tp_file_tensor *t = &s->tensor;
    const int64_t columns = t->numel / t->shape.dim[0], most = rows_at_once(t, size);
    const int64_t rows = (first + n - 1) / columns - first / columns + 1;
    const int64_t step = s->stride[t->shape.ndim - 1] * (int64_t)size;
    const int64_t each = step > 0 && step < WINDOW ? WINDOW / step : 1; /* elements of a window */
    return s->stride[0] == 1 && columns * ((rows - 1) / most + 1) < n / each;
}

static bool read_shard(tp_file *F, const tp_file_slot *s, size_t first, size_t n, void *to)
{
    if (tp__file_bytes(s->shard, s->there, s->before + first, n, to)) return true;
    bad(F, "%s", tp_file_why(s->shard));
    return false;
}

/* Little-endian numbers from big-endian ones, or the reverse. */
static void swap(unsigned char *p, size_t n, size_t size)
{
    for (; n >= size; p += size, n -= size)
        for (size_t i = 0; i < size / 2; i++) {
            const unsigned char byte = p[i];
            p[i] = p[size - 1 - i];
            p[size - 1 - i] = byte;
        }
}

/* The bytes as they are in the file, in row-major order. */
static bool read_raw(tp_file *F, tp_file_slot *s, size_t first, size_t n, void *to)
{
    const tp_file_tensor *t = &s->tensor;
    if (s->shard) return read_shard(F, s, first, n, to);
    if (!check_entry(F, s)) return false;
    if (s->scattered) {
        const size_t size = tp__stored(t->stored)->size;
        const int64_t from = (int64_t)(first / size), count = (int64_t)(n / size);
        if (n == 0) return true;
        return by_columns(s, from, count, size) ? gather_columns(F, s, from, count, size, to)
                                                : gather(F, s, from, count, size, to);
    }
    if (F->has_sums && !s->is_checked) {
        if (n == s->before + t->bytes + s->after) return read_checked(F, s, to);
        if (!read_checked(F, s, NULL)) return false;
    }
    return read_at(F, s->fd, s->from + first, to, n);
}

bool tp__file_bytes(tp_file *F, const tp_file_tensor *t, size_t first, size_t n, void *to)
{
    tp_file_slot *s = slot_of(t);
    if (!tp_file_ok(F) || !tp__file_readable(F, t) || !read_raw(F, s, first, n, to)) return false;
    if (s->swapped) swap(to, n, tp__stored(t->stored)->size);
    return true;
}

/* False, with F failed, if the file has become shorter. */
static bool check_size(tp_file *F)
{
    struct stat now;
    if (fstat(F->fd, &now) != 0 || (size_t)now.st_size >= F->size) return true;
    bad(F, "became shorter since it was opened: it ends at offset %zu of %zu" TP_FILE_AGAIN,
        (size_t)now.st_size, F->size);
    return false;
}

bool tp__file_check(tp_file *F, const tp_file_tensor *t)
{
    tp_file_slot *s = slot_of(t);
    if (!tp_file_ok(F)) return false;
    if (s->shard) {
        if (!tp__file_check(s->shard, s->there)) bad(F, "%s", tp_file_why(s->shard));
        return tp_file_ok(F);
    }
    if (!check_size(F)) return false;
    return check_entry(F, s) &&
           (!F->has_sums || s->scattered || s->is_checked || read_checked(F, s, NULL));
}

bool tp_file_has_checksums(const tp_file *F)
{
    if (!F) return false;
    bool all = F->nshards > 0;
    for (int i = 0; i < F->nshards; i++) all = all && tp_file_has_checksums(F->shards[i]);
    return F->has_sums || all;
}

bool tp_file_verify(tp_file *F)
{
    for (int i = 0; tp_file_ok(F) && i < F->nshards; i++)
        if (!tp_file_verify(F->shards[i])) bad(F, "%s", tp_file_why(F->shards[i]));
    for (int i = 0; tp_file_ok(F) && F->has_sums && i < F->n; i++)
        if (!F->at[i].is_checked) read_checked(F, &F->at[i], NULL);
    for (int i = 0; tp_file_ok(F) && i < F->n; i++) check_entry(F, &F->at[i]);
    return tp_file_ok(F);
}

const void *tp_file_data(tp_file *F, const tp_file_tensor *t)
{
    if (!F || !t) {
        if (F) tp__file_fail(F, TP_E_VALUE, TP_FILE_ABSENT);
        return NULL;
    }
    tp_file_slot *s = slot_of(t);
    if (s->bytes || !tp_file_ok(F)) return s->bytes;
    void *bytes = malloc(t->bytes + (t->bytes == 0));
    if (!bytes)
        tp__file_fail(F, TP_E_MEMORY, "out of memory for the %zu bytes of tensor '%.200s'",
                      t->bytes, t->name);
    else if (tp__file_bytes(F, t, 0, t->bytes, bytes))
        return s->bytes = bytes;
    free(bytes);
    return NULL;
}

/* ---- dtypes ---- */

/* Reads tensors of a file in the requested dtype.
 *
 * Equal dtypes are copied. Floating-point dtypes convert through double, integers through int64
 * with a range check. Every element is loaded by memcpy, since data need not be aligned. 8-bit
 * floats have no scale here and are therefore not converted. */
enum { PIECE = 4096 }; /* elements converted at a time */

static float from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h >> 15) << 31, e = h >> 10 & 31u, m = h & 1023u;
    const uint32_t bits = sign | (e == 31 ? 255u : e + 112u) << 23 | m << 13;
    float f;
    if (e == 0) return (sign ? -0x1p-24f : 0x1p-24f) * (float)m;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Declares x of type T and loads it from p. */
#define LOAD(T, x)                                                                                 \
    T x;                                                                                           \
    memcpy(&x, p, sizeof x)

static double load_float(const tp_stored *s, const unsigned char *p)
{
    if (s->size == 8) {
        LOAD(double, d);
        return d;
    }
    if (s->size == 4) {
        LOAD(float, f);
        return (double)f;
    }
    LOAD(uint16_t, h);
    return (double)(s->dt == TP_BF16 ? tp__from_bf16(h) : from_f16(h));
}

/* The first letter of an integer dtype's name determines how to widen it (BOOL, I*, U*). False if
 * the value exceeds int64. */
static bool load_int(const tp_stored *s, const unsigned char *p, int64_t *out)
{
    const unsigned unused = (unsigned)(64 - 8 * s->size);
    uint64_t u = 0;
    memcpy(&u, p, s->size);
    switch (s->name[0]) {
    case 'B': *out = u != 0; return true;
    case 'I': *out = (int64_t)(u << unused) >> unused; return true;
    default: *out = (int64_t)u; return u <= INT64_MAX;
    }
}

/* Converts the stored integers src, elements `first` and on, into `to`. */
static bool ints(tp_file *F, const tp_file_tensor *t, const tp_stored *s, const unsigned char *src,
                 int64_t first, const tp_view *to)
{
    const int64_t low = to->dtype == TP_I64 ? INT64_MIN : to->dtype == TP_I32 ? INT32_MIN : 0;
    const int64_t high = to->dtype == TP_I64   ? INT64_MAX
                         : to->dtype == TP_I32 ? INT32_MAX
                                               : UINT8_MAX;
    for (int64_t i = 0; i < to->numel; i++) {
        int64_t x;
        const bool fits = load_int(s, src + (size_t)i * s->size, &x);
        if (!fits || x < low || x > high) {
            const uint64_t size = fits && x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
            tp__file_fail(F, TP_E_VALUE,
                          "element %" PRId64 " of tensor '%.200s' is %s%" PRIu64
                          ", which does not fit %s; read it as a wider dtype",
                          first + i, t->name, fits && x < 0 ? "-" : "", size,
                          tp_dtype_name(to->dtype));
            return false;
        }
        switch (to->dtype) {
        case TP_I64: ((int64_t *)to->data)[i] = x; break;
        case TP_I32: ((int32_t *)to->data)[i] = (int32_t)x; break;
        default: ((uint8_t *)to->data)[i] = (uint8_t)x; break;
        }
    }
    return true;
}

/* Converts through src, which has room for `piece` stored elements. */
static bool convert_in(tp_file *F, const tp_file_tensor *t, const tp_stored *s, int64_t first,
                       const tp_view *whole, unsigned char *src, int64_t piece)
{
    for (int64_t at = 0; at < whole->numel; at += piece) {
        const int64_t m = whole->numel - at < piece ? whole->numel - at : piece;
        const tp_view to = { .data = (char *)whole->data + (size_t)at * tp_dtype_size(whole->dtype),
                             .dtype = whole->dtype,
                             .numel = m };
        if (!tp__file_bytes(F, t, (size_t)(first + at) * s->size, (size_t)m * s->size, src))
            return false;
        for (int64_t i = 0; s->kind == TP_STORED_FLOAT && i < m; i++)
            tp_st(&to, i, load_float(s, src + (size_t)i * s->size));
        if (s->kind == TP_STORED_INT && !ints(F, t, s, src, first + at, &to)) return false;
    }
    return true;
}

/* Takes PIECE elements at a time; of scattered ones whole rows, whose columns are read once. */
static bool convert(tp_file *F, const tp_file_tensor *t, const tp_stored *s, int64_t first,
                    const tp_view *to)
{
    unsigned char few[PIECE * sizeof(double)];
    const tp_file_slot *slot = slot_of(t);
    const tp_file_slot *place = slot->shard ? slot_of(slot->there) : slot;
    if (!place->scattered || to->numel <= PIECE) return convert_in(F, t, s, first, to, few, PIECE);
    int64_t piece = rows_at_once(t, s->size) * (t->numel / t->shape.dim[0]);
    if (piece > ROOM / (int64_t)s->size) piece = ROOM / (int64_t)s->size; /* of a longer row */
    if (piece > to->numel) piece = to->numel;
    unsigned char *src = malloc((size_t)piece * s->size);
    if (!src) tp__file_fail(F, TP_E_MEMORY, "out of memory to convert tensor '%.200s'", t->name);
    const bool done = src && convert_in(F, t, s, first, to, src, piece);
    free(src);
    return done;
}

bool tp_file_read_part(tp_file *F, const tp_file_tensor *t, int64_t first, int64_t n, tp_dtype dt,
                       void *host)
{
    if (!tp_file_ok(F)) return false;
    if (!t) {
        tp__file_fail(F, TP_E_VALUE, TP_FILE_ABSENT);
        return false;
    }
    if (!tp__file_readable(F, t)) return false;
    if (first < 0 || n < 0 || first > t->numel - n) {
        tp__file_fail(F, TP_E_VALUE,
                      "%lld elements from %lld on of tensor '%.200s' were read, but it has %lld",
                      (long long)n, (long long)first, t->name, (long long)t->numel);
        return false;
    }
    const tp_stored *s = tp__stored(t->stored);
    if (s->dt == dt)
        return tp__file_bytes(F, t, (size_t)first * s->size, (size_t)n * s->size, host);
    if ((s->kind == TP_STORED_FLOAT && tp_is_float(dt)) ||
        (s->kind == TP_STORED_INT && (dt == TP_I64 || dt == TP_I32 || dt == TP_U8)))
        return convert(F, t, s, first, &(tp_view){ .data = host, .dtype = dt, .numel = n });
    tp__file_fail(F, TP_E_DTYPE, "tensor '%.200s' is stored as %s and cannot be read as %s; %s",
                  t->name, s->name, tp_dtype_name(dt),
                  s->kind == TP_STORED_FLOAT ? "read it as f32, f64 or bf16"
                  : s->kind == TP_STORED_INT ? "read it as i64, i32 or u8"
                                             : "take its bytes with tp_file_data");
    return false;
}

bool tp_file_read(tp_file *F, const tp_file_tensor *t, tp_dtype dt, void *host)
{
    return tp_file_read_part(F, t, 0, t ? t->numel : 0, dt, host);
}
