/* test_image.c - decoding: every difficult file of the shared JPEG collection gives the listed
 * result. Boxes and shrinking, generated PNGs of every kind, and every error text.
 *
 * The collection is in $TAPEGRAD_DATA/jpeg or in ../shared/data/jpeg beside the source folder. */
#include <criterion/criterion.h>
#include <math.h>
#include <png.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jpeglib.h> /* needs stdio.h */

#include <tapegrad/image.h>

#include "support/folder.h"
#include "support/limit.h"

enum { FIELDS = 18, LINE = 2048 };

static FILE *open_list(char *root, size_t size)
{
    const char *roots[] = { getenv("TAPEGRAD_DATA"), TP_SOURCE_DIR "/../shared/data" };
    char path[600];
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        if (!roots[i]) continue;
        snprintf(root, size, "%s/jpeg", roots[i]);
        snprintf(path, sizeof path, "%s/MANIFEST.tsv", root);
        FILE *f = fopen(path, "r");
        if (f) return f;
    }
    cr_skip_test("no JPEG collection: set TAPEGRAD_DATA to the folder that holds jpeg/");
    return NULL;
}

static void means(const tp_image *p, double mean[3])
{
    memset(mean, 0, 3 * sizeof *mean);
    for (int64_t i = 0; i < p->width * p->height * 3; i++) mean[i % 3] += p->rgb[i];
    for (int c = 0; c < 3; c++) mean[c] /= (double)(p->width * p->height);
}

/* The list's columns with the expected result. Pillow reads the images, or djpeg with a warning, as
 * for truncated files. */
typedef struct wanted {
    const char *file, *size, *load, *mean;
    bool readable;
    int orientation;
} wanted;

static wanted parse(char *line)
{
    char *field[FIELDS] = { 0 };
    for (int i = 0; i < FIELDS && line; i++) {
        field[i] = line;
        if ((line = strchr(line, '\t'))) *line++ = '\0';
    }
    cr_assert(field[FIELDS - 1], "a line of the list has %d fields", FIELDS);
    return (wanted){ .file = field[0],
                     .size = field[3],
                     .load = field[12],
                     .mean = field[14],
                     .readable = strcmp(field[12], "ok") == 0 || strcmp(field[13], "rc2 warn") == 0,
                     .orientation = atoi(field[10]) };
}

static void expect_pixels(const tp_image *p, const wanted *w)
{
    char size[64];
    double mean[3], want[3];
    snprintf(size, sizeof size, "%lldx%lld", (long long)p->width, (long long)p->height);
    cr_expect_str_eq(size, w->size, "%s: %s", w->file, size);
    cr_assert_eq(sscanf(w->mean, "%lf %lf %lf", &want[0], &want[1], &want[2]), 3);
    means(p, mean);
    for (int c = 0; c < 3; c++)
        cr_expect_float_eq(mean[c], want[c], 0.02, "%s: the mean of channel %d is %.3f, not %.3f",
                           w->file, c, mean[c], want[c]);
}

static void check_orientation(const char *path, const wanted *w, const tp_image *stored)
{
    tp_image p = { 0 };
    const bool turned = w->orientation >= 5;
    cr_assert(tp_image_read(&p, path, &(tp_image_opts){ .orient = true }), "%s: %s", path, p.why);
    cr_expect_eq(p.width, turned ? stored->height : stored->width, "%s", path);
    if (w->orientation <= 1)
        cr_expect_arr_eq(p.rgb, stored->rgb, (size_t)(p.width * p.height * 3), "%s", path);
    tp_image_free(&p);
}

static void check_file(const char *root, const wanted *w)
{
    char path[1200];
    tp_image p = { 0 }, strict = { 0 };
    snprintf(path, sizeof path, "%s/%.600s", root, w->file);
    const bool ok = tp_image_read(&p, path, NULL);
    cr_expect(ok == (p.why[0] == '\0') && ok == tp_image_ok(&p), "%s: %s", w->file, p.why);
    cr_expect_eq(ok, w->readable, "%s: %s", w->file, ok ? "was read" : p.why);
    cr_expect_eq(tp_image_read(&strict, path, &(tp_image_opts){ .strict = true }),
                 strcmp(w->load, "ok") == 0, "%s, strict: %s", w->file, strict.why);
    if (ok) expect_pixels(&p, w);
    if (ok) check_orientation(path, w, &p);
    tp_image_free(&p);
    tp_image_free(&strict);
}

Test(image, difficult_files)
{
    char root[512], line[LINE];
    int files = 0;
    FILE *f = open_list(root, sizeof root);
    cr_assert(fgets(line, sizeof line, f), "the list has a header");
    while (fgets(line, sizeof line, f)) {
        const wanted w = parse(line);
        check_file(root, &w);
        files++;
    }
    fclose(f);
    cr_expect_geq(files, 50, "the list names %d files", files);
}

/* A box decodes to the pixels of the whole image, at every scale. */
Test(image, boxes_of_difficult_files)
{
    static const double boxes[][4] = {
        { 0, 0, 1, 1 },          { 0, 0, 0.3, 0.3 },     { 0.5, 0.5, 0.5, 0.5 },
        { 0.4, 0.1, 0.2, 0.7 },  { 0.1, 0.6, 0.8, 0.1 }, { 0.99, 0.99, 0, 0 },
        { 0.3, 0.2, 0.31, 0.4 },
    };
    static const char *const names[] = { "flower.jpg",    "progressive3.jpg", "hopper_gray.jpg",
                                         "cmyk-2.jpg",    "testimgari.jpg",   "rgb.jpg",
                                         "size-33x33.jpg" };
    char root[512], path[600];
    fclose(open_list(root, sizeof root));
    tp_image all = { 0 }, full = { 0 }, part = { 0 };
    for (size_t i = 0; i < sizeof names / sizeof *names * 4; i++) {
        tp_image_opts o = { .shrink = 1 << i % 4 };
        snprintf(path, sizeof path, "%s/%s", root, names[i / 4]);
        cr_assert(tp_image_read(&full, path, NULL) && tp_image_read(&all, path, &o), "%s", path);
        cr_expect_eq(all.width, (full.width + o.shrink - 1) / o.shrink, "%s / %d", path, o.shrink);
        for (size_t b = 0; b < sizeof boxes / sizeof *boxes; b++) {
            const double W = (double)full.width, H = (double)full.height;
            o.box = (tp_box){ (int64_t)(boxes[b][0] * W), (int64_t)(boxes[b][1] * H),
                              1 + (int64_t)(boxes[b][2] * (W - 1)),
                              1 + (int64_t)(boxes[b][3] * (H - 1)) };
            cr_assert(tp_image_read(&part, path, &o), "box %zu: %s", b, part.why);
            const int64_t x = o.box.x / o.shrink, y = o.box.y / o.shrink;
            for (int64_t row = 0; row < part.height; row++)
                cr_expect_arr_eq(part.rgb + row * part.width * 3,
                                 all.rgb + ((y + row) * all.width + x) * 3, (size_t)part.width * 3,
                                 "%s / %d: row %lld of box %zu", path, o.shrink, (long long)row, b);
        }
    }
    tp_image_free(&all);
    tp_image_free(&full);
    tp_image_free(&part);
}

/* ---- generated files ---- */

enum { WIDTH = 37, HEIGHT = 29 };

static unsigned value(int64_t x, int64_t y, int c)
{
    return (unsigned)(x * 7 + y * 11 + c * 90) % 256;
}

typedef struct bytes {
    uint8_t *at;
    size_t n;
} bytes;

static void append(png_structp png, png_bytep from, size_t n)
{
    bytes *b = png_get_io_ptr(png);
    b->at = realloc(b->at, b->n + n);
    cr_assert(b->at);
    memcpy(b->at + b->n, from, n);
    b->n += n;
}

static const struct kind {
    const char *name;
    int depth, colour;
    bool interlaced, transparent;
} kinds[] = {
    { "grey 1", 1, PNG_COLOR_TYPE_GRAY, false, false },
    { "grey 2, interlaced", 2, PNG_COLOR_TYPE_GRAY, true, false },
    { "grey 4", 4, PNG_COLOR_TYPE_GRAY, false, false },
    { "grey 8", 8, PNG_COLOR_TYPE_GRAY, false, false },
    { "grey 8, a transparent value", 8, PNG_COLOR_TYPE_GRAY, false, true },
    { "grey 16", 16, PNG_COLOR_TYPE_GRAY, false, false },
    { "grey and alpha 8", 8, PNG_COLOR_TYPE_GRAY_ALPHA, false, false },
    { "grey and alpha 16", 16, PNG_COLOR_TYPE_GRAY_ALPHA, true, false },
    { "palette 2", 2, PNG_COLOR_TYPE_PALETTE, false, false },
    { "palette 8, transparent entries", 8, PNG_COLOR_TYPE_PALETTE, true, true },
    { "rgb 8", 8, PNG_COLOR_TYPE_RGB, false, false },
    { "rgb 8, interlaced", 8, PNG_COLOR_TYPE_RGB, true, false },
    { "rgb 16, a transparent value", 16, PNG_COLOR_TYPE_RGB, false, true },
    { "rgba 8", 8, PNG_COLOR_TYPE_RGBA, false, false },
    { "rgba 16, interlaced", 16, PNG_COLOR_TYPE_RGBA, true, false },
};

/* The number of stored channels. */
static int channels(const struct kind *k)
{
    return k->colour == PNG_COLOR_TYPE_PALETTE ? 1
                                               : (k->colour & PNG_COLOR_MASK_COLOR ? 3 : 1) +
                                                     (k->colour & PNG_COLOR_MASK_ALPHA ? 1 : 0);
}

static unsigned sample(const struct kind *k, int64_t x, int64_t y, int c)
{
    return k->depth >= 8 ? value(x, y, c) : value(x, y, c) >> (8 - k->depth);
}

static uint8_t expected(const struct kind *k, int64_t x, int64_t y, int c)
{
    if (k->colour == PNG_COLOR_TYPE_PALETTE) return (uint8_t)(sample(k, x, y, 0) * 3 + (unsigned)c);
    if (!(k->colour & PNG_COLOR_MASK_COLOR)) c = 0;
    const unsigned top = (1U << (k->depth < 8 ? k->depth : 8)) - 1;
    return (uint8_t)(sample(k, x, y, c) * 255 / top);
}

static void put_header(png_structp png, png_infop info, const struct kind *k)
{
    png_color palette[256];
    png_byte alpha[256] = { 0 };
    png_set_IHDR(png, info, WIDTH, HEIGHT, k->depth, k->colour,
                 k->interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    for (int i = 0; i < 256; i++)
        palette[i] = (png_color){ (png_byte)(i * 3), (png_byte)(i * 3 + 1), (png_byte)(i * 3 + 2) };
    if (k->colour == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette, 1 << k->depth);
    if (k->transparent) png_set_tRNS(png, info, alpha, 4, &(png_color_16){ .gray = 7, .red = 7 });
    png_write_info(png, info);
}

static bytes make_png(const struct kind *k)
{
    bytes b = { 0 };
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_set_write_fn(png, &b, append, NULL);
    put_header(png, info, k);
    png_set_packing(png);
    const int n = channels(k), wide = k->depth == 16 ? 2 : 1;
    uint8_t *all = calloc(HEIGHT * WIDTH * 8, 1), *rows[HEIGHT];
    for (int64_t y = 0; y < HEIGHT; y++) {
        uint8_t *to = rows[y] = all + y * WIDTH * 8;
        for (int64_t i = 0; i < WIDTH * n; i++, to += wide) {
            to[0] = (uint8_t)sample(k, i / n, y, (int)(i % n));
            if (wide == 2) to[1] = 0xc7; /* the low byte is lost */
        }
    }
    png_write_image(png, rows);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    free(all);
    return b;
}

static void expect_kind(const tp_image *p, const struct kind *k, tp_box box, int64_t rows)
{
    cr_expect(p->width == box.width && p->height == box.height, "%s", k->name);
    int wrong = 0;
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < p->width; x++)
            for (int c = 0; c < 3; c++)
                wrong += p->rgb[(y * p->width + x) * 3 + c] != expected(k, box.x + x, box.y + y, c);
    cr_expect_eq(wrong, 0, "%s: %d values differ", k->name, wrong);
}

Test(image, png_of_every_kind)
{
    const tp_box all = { 0, 0, WIDTH, HEIGHT }, some = { 5, 3, 20, 19 };
    tp_image p = { 0 };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct kind *k = &kinds[i];
        int64_t width = 0, height = 0;
        bytes b = make_png(k);
        cr_expect(tp_image_decode(&p, b.at, b.n, NULL), "%s: %s", k->name, p.why);
        expect_kind(&p, k, all, HEIGHT);
        cr_expect(tp_image_decode(&p, b.at, b.n, &(tp_image_opts){ .box = some, .shrink = 2 }),
                  "%s: %s", k->name, p.why);
        expect_kind(&p, k, some, some.height);
        cr_expect(tp_image_size(b.at, b.n, &width, &height), "%s", k->name);
        cr_expect(width == WIDTH && height == HEIGHT, "%s", k->name);
        free(b.at);
    }
    tp_image_free(&p);
}

/* A truncated PNG keeps the rows read and is black below; with strict it is an error. */
Test(image, truncated_png)
{
    tp_image p = { 0 };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct kind *k = &kinds[i];
        bytes b = make_png(k);
        for (size_t n = 0; n < b.n - 20; n += 3) {
            const bool ok = tp_image_decode(&p, b.at, n, NULL);
            cr_expect(ok == (p.why[0] == '\0'), "%s: %zu bytes: %s", k->name, n, p.why);
            if (ok) cr_expect(p.width == WIDTH && p.height == HEIGHT, "%s", k->name);
            cr_expect_not(tp_image_decode(&p, b.at, n, &(tp_image_opts){ .strict = true }),
                          "%s: %zu of %zu bytes", k->name, n, b.n);
        }
        free(b.at);
    }
    tp_image_free(&p);
}

/* A constant grey JPEG; progressive with this number of scans unless that is 1. */
static bytes make_jpeg(unsigned width, unsigned height, int scans)
{
    jpeg_scan_info scan[65] = { { .comps_in_scan = 1 } };
    for (int k = 1; k < 64; k++) scan[k] = (jpeg_scan_info){ .comps_in_scan = 1, .Ss = k, .Se = k };
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    bytes b = { 0 };
    unsigned long n = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &b.at, &n);
    c.image_width = width;
    c.image_height = height;
    c.input_components = 1;
    c.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&c);
    if (scans > 1) {
        c.scan_info = scan;
        c.num_scans = scans;
    }
    jpeg_start_compress(&c, TRUE);
    JSAMPLE *row = malloc(width);
    memset(row, 77, width);
    for (unsigned y = 0; y < height; y++) jpeg_write_scanlines(&c, &row, 1);
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(row);
    b.n = n;
    return b;
}

/* Each scan covers the full image, so a one-megabyte file could take half a minute. */
Test(image, scans)
{
    static const struct {
        unsigned width, height;
        int scans;
        const char *why;
    } cases[] = {
        { 300, 200, 64, "" },
        { 65500, 480, 20, "" },
        { 65500, 480, 40, "JPEG: too many scans for an image of its size" },
    };
    tp_image p = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bytes b = make_jpeg(cases[i].width, cases[i].height, cases[i].scans);
        cr_expect_eq(tp_image_decode(&p, b.at, b.n, NULL), !cases[i].why[0], "%zu", i);
        cr_expect_str_eq(p.why, cases[i].why, "%zu: %s", i, p.why);
        free(b.at);
    }
    tp_image_free(&p);
}

/* libjpeg keeps the coefficients of a progressive image: 50 MB here, for pixels of 2 MB. */
Test(image, jpeg_without_memory)
{
    tp_image p = { 0 };
    const tp_image_opts eighth = { .shrink = 8 };
    bytes b = make_jpeg(5000, 5000, 20);
    struct rlimit before;
    if (MEMORY_IS_LIMITED) {
        limit_memory(20 << 20, &before);
        cr_expect_not(tp_image_decode(&p, b.at, b.n, &eighth));
        setrlimit(RLIMIT_AS, &before);
        cr_expect_str_eq(p.why, "JPEG: out of memory");
        cr_expect(p.shortage);
    }
    setenv("JPEGMEM", "100", 1); /* kB */
    cr_expect_not(tp_image_decode(&p, b.at, b.n, &eighth));
    cr_expect(p.shortage && strcmp(p.why, "JPEG: out of memory") == 0, "%s", p.why);
    unsetenv("JPEGMEM");
    cr_expect_not(tp_image_decode(&p, b.at, 100, &eighth));
    cr_expect(!p.shortage && strncmp(p.why, "JPEG: ", 6) == 0, "%s", p.why);
    cr_expect(tp_image_decode(&p, b.at, b.n, &eighth) && !p.shortage && p.width == 625, "%s",
              p.why);
    free(b.at);
    tp_image_free(&p);
}

Test(image, sizes_and_limits)
{
    tp_image p = { 0 };
    bytes wide = make_jpeg(65500, 1, 1), large = make_jpeg(400, 300, 1);
    cr_assert(tp_image_decode(&p, wide.at, wide.n, NULL), "%s", p.why);
    cr_expect(p.width == 65500 && p.height == 1 && p.rgb[65499 * 3 + 2] == 77);

    const struct {
        const char *name;
        tp_image_opts opts;
        const char *why;
    } cases[] = {
        { "just allowed", { .max_pixels = 120000 }, "" },
        { "too large",
          { .max_pixels = 119999 },
          "JPEG: 400 x 300 pixels are more than the limit of 119999 (max_pixels; "
          "--max-pixels of programs)" },
        { "too large, whatever is wanted of it",
          { .max_pixels = 9999, .shrink = 8, .box = { 0, 0, 1, 1 } },
          "JPEG: 400 x 300 pixels are more than the limit of 9999 (max_pixels; "
          "--max-pixels of programs)" },
        { "shrink", { .shrink = 3 }, "JPEG: shrink must be 1, 2, 4 or 8" },
        { "box",
          { .box = { 300, 0, 101, 5 } },
          "the box of 101 x 5 pixels at (300, 0) is not inside the image of 400 x 300" },
        { "empty box",
          { .box = { 300, 0, 10, 0 } },
          "the box of 10 x 0 pixels at (300, 0) is not inside the image of 400 x 300" },
        { "box that overflows",
          { .box = { 1, 1, INT64_MAX, 2 } },
          "the box of 9223372036854775807 x 2 pixels at (1, 1) is not inside the image of 400 "
          "x 300" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool ok = tp_image_decode(&p, large.at, large.n, &cases[i].opts);
        cr_expect_eq(ok, cases[i].why[0] == '\0', "%s", cases[i].name);
        cr_expect_str_eq(p.why, cases[i].why, "%s: %s", cases[i].name, p.why);
    }
    free(wide.at);
    free(large.at);
    tp_image_free(&p);
}

Test(image, writing, .init = make_folder, .fini = remove_folder)
{
    static const int64_t sizes[][2] = { { 1, 1 }, { 37, 29 }, { 640, 3 } };
    tp_image p = { 0 }, back = { 0 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t W = sizes[i][0], n = W * sizes[i][1] * 3;
        cr_assert(tp_image_new(&p, W, sizes[i][1]));
        for (int64_t k = 0; k < n; k++)
            p.rgb[k] = (uint8_t)value(k / 3 % W, k / 3 / W, (int)(k % 3));
        cr_assert(tp_image_write(&p, in_folder("image.png")), "%s", p.why);
        cr_assert(tp_image_read(&back, in_folder("image.png"), NULL), "%s", back.why);
        cr_expect(back.width == W && back.height == sizes[i][1]);
        cr_expect_arr_eq(back.rgb, p.rgb, (size_t)n, "%lld columns", (long long)W);
    }
    cr_expect_eq(files_in_folder(), 1, "nothing is left beside it");
    cr_expect_not(tp_image_write(&p, in_folder("none/image.png")));
    cr_expect(strstr(p.why, "cannot be written: creating ") &&
                  strstr(p.why, "create the folder first"),
              "%s", p.why);
    cr_expect(tp_image_ok(&p), "the pixels stay");
    tp_image_free(&p);
    cr_expect_not(tp_image_write(&p, in_folder("image.png")));
    cr_expect_str_eq(p.why, "an empty image cannot be written");
    tp_image_free(&back);
}

/* A file that is truncated and refilled during a read causes no SIGBUS. */
Test(image, file_that_shrinks, .init = make_folder, .fini = remove_folder)
{
    enum { TIMES = 400 };
    tp_image p = { 0 };
    const char *path = in_folder("shrinks.png");
    struct stat st;
    cr_assert(tp_image_new(&p, 500, 400));
    uint32_t grain = 1;
    for (int i = 0; i < 500 * 400 * 3; i++)
        p.rgb[i] = (uint8_t)((grain = grain * 1664525u + 1013904223u) >> 24);
    cr_assert(tp_image_write(&p, path), "%s", p.why);
    cr_assert(stat(path, &st) == 0 && st.st_size > 20000, "%lld", (long long)st.st_size);
    const pid_t child = fork();
    while (child == 0)
        if (truncate(path, st.st_size) != 0 || truncate(path, 5000) != 0) _exit(1);
    for (int i = 0; i < TIMES; i++)
        cr_expect(tp_image_read(&p, path, NULL) || p.why[0], "read, or a reason");
    kill(child, SIGKILL);
    cr_assert_eq(waitpid(child, NULL, 0), child);
    tp_image_free(&p);
}

/* Reading other kinds of files could block or never end. Compressed files are not unpacked. */
Test(image, only_images_in_regular_files, .init = make_folder, .fini = remove_folder)
{
    tp_image p = { 0 };
    cr_assert(mkfifo(in_folder("pipe.jpg"), 0600) == 0);
    cr_assert(symlink("/dev/zero", in_folder("zero.jpg")) == 0);
    FILE *f = fopen(in_folder("packed.jpg"), "wb");
    cr_assert(f && fwrite("\x28\xb5\x2f\xfd\x04\x50\0\0", 8, 1, f) == 1 && fclose(f) == 0);
    f = fopen(in_folder("long.jpg"), "wb");
    cr_assert(f && fclose(f) == 0 && truncate(in_folder("long.jpg"), (1 << 30) + 1) == 0);
    static const char *const cases[][2] = {
        { "pipe.jpg", "pipe.jpg: is a pipe; a regular file is wanted" },
        { "zero.jpg", "zero.jpg: is a device; a regular file is wanted" },
        { "packed.jpg", "packed.jpg: neither JPEG nor PNG: it begins with the byte 28" },
        { "long.jpg", "long.jpg: has 1073741825 bytes, more than the 1073741824 allowed" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_not(tp_image_read(&p, in_folder(cases[i][0]), NULL));
        cr_expect(strstr(p.why, cases[i][1]), "%s", p.why);
    }
    tp_image_free(&p);
}

Test(image, errors, .init = make_folder, .fini = remove_folder)
{
    tp_image p = { 0 }, copy = { 0 };
    static const struct {
        const char *name, *bytes;
        size_t n;
        const char *why;
    } cases[] = {
        { "nothing", "", 0, "the image is empty (0 bytes)" },
        { "text", "text", 4, "neither JPEG nor PNG: it begins with the byte 74" },
        { "a byte", "\xff", 1,
          "neither JPEG nor PNG: it begins with the byte ff and is too short" },
        { "start alone", "\xff\xd8", 2, "JPEG: JPEG datastream contains no image" },
        { "PNG cut off", "\x89PNG\r\n\x1a\n\0\0", 10, "PNG: the file is cut off" },
        { "not quite PNG", "\x89PNG\n\n\n\n", 8, "PNG: PNG file corrupted by ASCII conversion" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t width, height;
        cr_expect_not(tp_image_decode(&p, cases[i].bytes, cases[i].n, NULL), "%s", cases[i].name);
        cr_expect_str_eq(p.why, cases[i].why, "%s: %s", cases[i].name, p.why);
        cr_expect_not(tp_image_size(cases[i].bytes, cases[i].n, &width, &height), "%s",
                      cases[i].name);
    }
    cr_expect_not(tp_image_copy(&copy, &p));
    cr_expect_str_eq(copy.why, p.why, "an empty image passes its reason on");
    cr_expect_not(tp_image_read(&p, in_folder("none.jpg"), NULL));
    cr_expect(strstr(p.why, "none.jpg: cannot be opened: No such file"), "%s", p.why);
    cr_expect_not(tp_image_new(&p, 5, 0));
    cr_expect_str_eq(p.why, "an image cannot have 5 x 0 pixels");
    cr_expect_not(tp_image_new(&p, 1 << 24, 1 << 24), "more memory than there is");
    cr_expect_not(tp_image_ok(&p));
    cr_expect(tp_image_new(&p, 2, 2) && !p.why[0], "a failed image can be used again");
    tp_image_free(&p);
}
