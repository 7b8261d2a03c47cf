/* events.c - event files for TensorBoard: the framing of records, the protobuf messages, PNG.
 *
 *     record   length (8 bytes), CRC of it (4), data, CRC of the data (4); little endian
 *     CRC      CRC-32C (Castagnoli), rotated right by 15 bits, plus 0xa282ead8
 *     message  fields: a key (number << 3 | wire type) and a value; a nested message, a text and
 *              a packed array are preceded by their length
 *
 * Messages are written by hand: there are six, and a protobuf library would be the only dependency
 * of this one file. Fields have the numbers of event.proto and summary.proto. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/events.h>
#include <tapegrad/file.h>
#include <time.h>
#include <unistd.h>

enum { BUCKETS = 30, HEAD = 12, TAIL = 4 };

/* A record in the making; lost: memory ran out. */
typedef struct record {
    unsigned char *at;
    size_t n, room;
    bool lost;
} record;

struct tp_events {
    int fd; /* -1: not open */
    off_t end;
    record r;
    char path[4500], why[6000];
};

static void fail(tp_events *E, const char *what, int error)
{
    if (!E->why[0])
        snprintf(E->why, sizeof E->why, "events %s: %s: %s; %s", E->path, what, strerror(error),
                 tp_file_advice(error));
}

/* ---- protobuf ---- */

static void put(record *r, const void *bytes, size_t n)
{
    r->lost = r->lost || !tp_reserve(&r->at, &r->room, r->n, n, 1);
    if (r->lost || n == 0) return;
    memcpy(r->at + r->n, bytes, n);
    r->n += n;
}

static size_t varint(unsigned char to[10], uint64_t x)
{
    size_t n = 0;
    for (; x > 127; x >>= 7) to[n++] = (unsigned char)(x | 128);
    to[n++] = (unsigned char)x;
    return n;
}

static void put_varint(record *r, uint64_t x)
{
    unsigned char digits[10];
    put(r, digits, varint(digits, x));
}

/* Wire types. */
enum { VARINT, FIXED64, LENGTH, FIXED32 = 5 };

static void put_key(record *r, int field, int type)
{
    put_varint(r, (uint64_t)(field << 3 | type));
}

static void put_int(record *r, int field, int64_t x)
{
    put_key(r, field, VARINT);
    put_varint(r, (uint64_t)x);
}

/* Bytes of x, the lowest first. */
static void put_fixed(record *r, uint64_t x, size_t n)
{
    unsigned char b[8];
    for (size_t i = 0; i < n; i++) b[i] = (unsigned char)(x >> (8 * i));
    put(r, b, n);
}

static void put_bits(record *r, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_fixed(r, bits, sizeof bits);
}

static void put_double(record *r, int field, double x)
{
    put_key(r, field, FIXED64);
    put_bits(r, x);
}

static void put_float(record *r, int field, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(r, field, FIXED32);
    put_fixed(r, bits, sizeof bits);
}

static void put_bytes(record *r, int field, const void *bytes, size_t n)
{
    put_key(r, field, LENGTH);
    put_varint(r, n);
    put(r, bytes, n);
}

/* Begins a nested message; `end` gets the result. */
static size_t begin(record *r, int field)
{
    put_key(r, field, LENGTH);
    return r->n;
}

/* Ends it: inserts its length, which is known only now. */
static void end(record *r, size_t from)
{
    unsigned char digits[10];
    const size_t length = r->n - from, n = varint(digits, length);
    put(r, digits, n); /* makes room */
    if (r->lost) return;
    memmove(r->at + from + n, r->at + from, length);
    memcpy(r->at + from, digits, n);
}

/* A text, which protobuf demands to be UTF-8. */
static void put_text(record *r, int field, const char *text)
{
    uint32_t ignored;
    const size_t from = begin(r, field);
    while (*text) {
        const size_t n = tp_utf8_at(text, &ignored);
        put(r, n ? text : "\xef\xbf\xbd", n ? n : 3);
        text += n ? n : 1;
    }
    end(r, from);
}

/* ---- records ---- */

static uint32_t masked_crc(const unsigned char *b, size_t n)
{
    static const uint32_t half[16] = { /* of each half byte, in the reflected polynomial 82f63b78 */
                                       0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                       0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                       0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75
    };
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        crc ^= b[i];
        crc = crc >> 4 ^ half[crc & 15];
        crc = crc >> 4 ^ half[crc & 15];
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static void begin_event(tp_events *E, int64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    record *r = &E->r;
    r->n = 0;
    r->lost = false;
    put(r, (unsigned char[HEAD]){ 0 }, HEAD);
    put_double(r, 1, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    put_int(r, 2, step);
}

/* Puts length and checksums around the data. */
static bool frame(record *r)
{
    if (!r->lost) put_fixed(r, masked_crc(r->at + HEAD, r->n - HEAD), TAIL);
    if (r->lost) return false;
    record head = { .at = r->at, .room = HEAD };
    put_fixed(&head, r->n - HEAD - TAIL, 8);
    put_fixed(&head, masked_crc(r->at, 8), 4);
    return true;
}

/* Appends the event in one write. What a full disk took of it is removed, so that the file still
 * ends with a whole record. */
static void end_event(tp_events *E)
{
    const record *r = &E->r;
    if (!frame(&E->r)) {
        fail(E, "an event cannot be made", ENOMEM);
        return;
    }
    if (tp_write_bytes(E->fd, r->at, r->n)) {
        E->end += (off_t)r->n;
    } else {
        fail(E, "cannot be written", errno);
        (void)!ftruncate(E->fd, E->end);
    }
}

/* ---- files ---- */

/* The name: "events.out.tfevents.SECONDS.NANOSECONDS.HOST.PID", in the order of time. */
static bool create(tp_events *E, const char *folder)
{
    char host[256] = "host";
    struct timespec now;
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '_';
    for (int attempt = 0; attempt < 100 && E->fd < 0; attempt++) {
        clock_gettime(CLOCK_REALTIME, &now);
        snprintf(E->path, sizeof E->path, "%.4096s/events.out.tfevents.%010lld.%09ld.%s.%ld",
                 folder, (long long)now.tv_sec, now.tv_nsec, host, (long)getpid());
        E->fd = open(E->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (E->fd < 0 && errno != EEXIST) break;
    }
    if (E->fd < 0) fail(E, "cannot be created", errno);
    return E->fd >= 0;
}

static tp_events no_memory = { .fd = -1, .why = "events: out of memory" };

tp_events *tp_events_open(const char *folder, int64_t first)
{
    char why[5000];
    tp_events *E = malloc(sizeof *E);
    if (!E) return &no_memory;
    *E = (tp_events){ .fd = -1 };
    if (!folder || !*folder)
        snprintf(E->why, sizeof E->why, "events: %s was given in place of a folder",
                 folder ? "an empty text" : "NULL");
    else if (!tp_make_folders(folder, why, sizeof why))
        snprintf(E->why, sizeof E->why, "events: folder %s", why);
    if (E->why[0] || !create(E, folder)) return E;
    begin_event(E, 0);
    put_text(&E->r, 3, "brain.Event:2"); /* file_version, which must come first */
    end_event(E);
    if (E->why[0]) return E;
    begin_event(E, first);
    const size_t mark = begin(&E->r, 7); /* session_log */
    put_int(&E->r, 1, 1);                /* status: START */
    end(&E->r, mark);
    end_event(E);
    return E;
}

bool tp_events_ok(const tp_events *E)
{
    return E && !E->why[0];
}

const char *tp_events_why(const tp_events *E)
{
    return E ? E->why : "events: NULL was given in place of an event file";
}

const char *tp_events_path(const tp_events *E)
{
    return E ? E->path : "";
}

void tp_events_close(tp_events *E)
{
    if (!E || E == &no_memory) return;
    if (E->fd >= 0) close(E->fd);
    free(E->r.at);
    free(E);
}

/* ---- summaries ---- */

/* Nested messages of an event with one value. */
typedef struct value {
    size_t summary, value;
} value;

/* Can E take the value? Fails it with the sentence `why` unless `fine`. */
static bool takes(tp_events *E, const char *tag, bool fine, const char *why)
{
    if (!tp_events_ok(E)) return false;
    const bool named = tag && *tag;
    if (!named || !fine)
        snprintf(E->why, sizeof E->why, "events %s: '%s': %s", E->path, named ? tag : "",
                 named ? why : "a value must have a tag");
    return named && fine;
}

static value begin_value(tp_events *E, const char *tag, int64_t step)
{
    begin_event(E, step);
    value v = { .summary = begin(&E->r, 5) };
    v.value = begin(&E->r, 1);
    put_text(&E->r, 1, tag);
    return v;
}

static void end_value(tp_events *E, value v)
{
    end(&E->r, v.value);
    end(&E->r, v.summary);
    end_event(E);
}

void tp_events_scalar(tp_events *E, const char *tag, int64_t step, double x)
{
    if (!takes(E, tag, true, "")) return;
    const value v = begin_value(E, tag, step);
    put_float(&E->r, 2, (float)x);
    end_value(E, v);
}

/* ---- images ---- */

static void put_image(tp_events *E, const char *tag, int64_t step, const int64_t size[2],
                      int channels, const void *png, size_t n)
{
    const value v = begin_value(E, tag, step);
    const size_t image = begin(&E->r, 4);
    put_int(&E->r, 1, size[0]);
    put_int(&E->r, 2, size[1]);
    put_int(&E->r, 3, channels);
    put_bytes(&E->r, 4, png, n);
    end(&E->r, image);
    end_value(E, v);
}

void tp_events_image(tp_events *E, const char *tag, int64_t step, int64_t height, int64_t width,
                     int channels, const unsigned char *pixels)
{
    const int64_t most = 1 << 14; /* of a side: a picture of 1 GiB */
    const bool sides = pixels && height > 0 && width > 0 && height <= most && width <= most;
    if (!takes(E, tag, sides, "an image must have pixels, and sides from 1 to 16384") ||
        !takes(E, tag, channels == 1 || channels == 3 || channels == 4,
               "an image must have 1, 3 or 4 channels"))
        return;
    png_image image = { .version = PNG_IMAGE_VERSION,
                        .width = (png_uint_32)width,
                        .height = (png_uint_32)height,
                        .format = channels == 1   ? PNG_FORMAT_GRAY
                                  : channels == 3 ? PNG_FORMAT_RGB
                                                  : PNG_FORMAT_RGBA };
    png_alloc_size_t n = PNG_IMAGE_PNG_SIZE_MAX(image);
    void *png = malloc(n);
    if (png && png_image_write_to_memory(&image, png, &n, 0, pixels, 0, NULL))
        put_image(E, tag, step, (int64_t[]){ height, width }, channels, png, n);
    else
        fail(E, "an image cannot be made", ENOMEM);
    free(png);
}

static int64_t big_endian(const unsigned char *b)
{
    return (int64_t)b[0] << 24 | (int64_t)b[1] << 16 | (int64_t)b[2] << 8 | (int64_t)b[3];
}

void tp_events_png(tp_events *E, const char *tag, int64_t step, const void *png, size_t n)
{
    static const unsigned char first[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    static const int channels[8] = { 1, 0, 3, 3, 2, 0, 4, 0 }; /* by colour type; 3: a palette */
    const unsigned char *b = png;
    const bool is_png = png && n >= 33 && memcmp(png, first, sizeof first - 1) == 0;
    if (!takes(E, tag, is_png, "the image is not a PNG")) return;
    const int64_t size[2] = { big_endian(b + 20), big_endian(b + 16) };
    put_image(E, tag, step, size, channels[b[25] & 7], png, n);
}

/* ---- histograms ---- */

/* Of the finite values. */
typedef struct spread {
    double min, max, n, sum, squares, bucket[BUCKETS];
} spread;

static int bucket_of(const spread *s, double x)
{
    const double k = s->max > s->min ? (x - s->min) / (s->max - s->min) * BUCKETS : 0;
    return k < BUCKETS ? (int)k : BUCKETS - 1;
}

static spread spread_of(const float *x, size_t n)
{
    spread s = { .min = (double)INFINITY, .max = -(double)INFINITY };
    for (size_t i = 0; i < n; i++) {
        const double v = x[i];
        if (!isfinite(v)) continue;
        s.n++;
        s.sum += v;
        s.squares += v * v;
        if (v < s.min) s.min = v;
        if (v > s.max) s.max = v;
    }
    for (size_t i = 0; i < n && s.n > 0; i++)
        if (isfinite(x[i])) s.bucket[bucket_of(&s, x[i])]++;
    return s;
}

void tp_events_histogram(tp_events *E, const char *tag, int64_t step, const float *x, size_t n)
{
    if (!takes(E, tag, x || n == 0, "NULL was given in place of values")) return;
    const spread s = spread_of(x, n);
    if (s.n == 0) return;
    const value v = begin_value(E, tag, step);
    record *r = &E->r;
    const double sums[5] = { s.min, s.max, s.n, s.sum, s.squares };
    const size_t histogram = begin(r, 5);
    for (int i = 0; i < 5; i++) put_double(r, i + 1, sums[i]);
    const size_t limits = begin(r, 6); /* the right edges */
    for (int i = 1; i <= BUCKETS; i++)
        put_bits(r, i < BUCKETS ? s.min + (s.max - s.min) * i / BUCKETS : s.max);
    end(r, limits);
    const size_t counts = begin(r, 7);
    for (int i = 0; i < BUCKETS; i++) put_bits(r, s.bucket[i]);
    end(r, counts);
    end(r, histogram);
    end_value(E, v);
}

/* ---- texts ---- */

void tp_events_text(tp_events *E, const char *tag, int64_t step, const char *text)
{
    if (!takes(E, tag, text, "NULL was given in place of a text")) return;
    const value v = begin_value(E, tag, step);
    record *r = &E->r;
    const size_t tensor = begin(r, 8);
    put_int(r, 1, 7);                 /* dtype: DT_STRING */
    const size_t shape = begin(r, 2); /* one axis of size 1 */
    const size_t axis = begin(r, 2);
    put_int(r, 1, 1);
    end(r, axis);
    end(r, shape);
    put_text(r, 8, text);
    end(r, tensor);
    const size_t metadata = begin(r, 9); /* names the plugin that shows it */
    const size_t plugin = begin(r, 1);
    put_text(r, 1, "text");
    end(r, plugin);
    end(r, metadata);
    end_value(E, v);
}
