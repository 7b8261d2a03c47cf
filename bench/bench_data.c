/* bench_data.c - the speed of the image loader: reading, decoding and augmentation, as JSON lines
 * (--help).
 *
 * Missing JPEG files are created in the folder: "large" of 500 x 375 pixels and about 70 kB each,
 * and "small" of 64 x 64. "images_per_s" is per second of CPU time, that is, of one core. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/image_set.h>
#include <tapegrad/options.h>

#include <jpeglib.h>

#include "timing.h"

enum { FILES = 32, CLASSES = 2, BATCH = 16 };

static const struct bench_case {
    const char *name, *folder, *recipe;
    int64_t size;
    bool plain; /* only crop and flip, no RandAugment, no erasing */
} cases[] = {
    { "224 from 500 x 375: evaluation", "large", "eval", 224, false },
    { "224 from 500 x 375: crop, flip", "large", "vil", 224, true },
    { "224 from 500 x 375: RandAugment, erasing too", "large", "vil", 224, false },
    { "64 from 64 x 64: crop, flip", "small", "vil", 64, true },
    { "64 from 64 x 64: RandAugment, erasing too", "small", "vil", 64, false },
};

/* ---- the images ---- */

/* Waves and grain, about as hard to compress as a photograph. */
static void draw_row(uint8_t *row, int width, int y, unsigned *state)
{
    for (int x = 0; x < width; x++)
        for (int c = 0; c < 3; c++) {
            *state = *state * 1664525u + 1013904223u;
            const double wave = sin(0.031 * x + 0.017 * y * (c + 1)) + sin(0.11 * y - 0.05 * x);
            row[3 * x + c] = (uint8_t)(128 + 45 * wave + (double)(*state >> 24) / 255 * 36 - 18);
        }
}

static bool write_jpeg(const char *path, int width, int height, unsigned seed)
{
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr errors;
    uint8_t row[3 * 500];
    JSAMPROW rows[] = { row };
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    j.err = jpeg_std_error(&errors);
    jpeg_create_compress(&j);
    jpeg_stdio_dest(&j, f);
    j.image_width = (JDIMENSION)width;
    j.image_height = (JDIMENSION)height;
    j.input_components = 3;
    j.in_color_space = JCS_RGB;
    jpeg_set_defaults(&j);
    jpeg_set_quality(&j, 90, TRUE);
    jpeg_start_compress(&j, TRUE);
    for (int y = 0; y < height; y++) {
        draw_row(row, width, y, &seed);
        jpeg_write_scanlines(&j, rows, 1);
    }
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    return fclose(f) == 0;
}

/* Creates FOLDER/{large,small}/{a,b}/NN.jpg; existing files are kept. */
static bool make_images(const char *folder)
{
    static const char *const sets[] = { "large", "small" };
    char path[1024];
    mkdir(folder, 0755);
    for (int s = 0; s < 2; s++) {
        snprintf(path, sizeof path, "%s/%s", folder, sets[s]);
        mkdir(path, 0755);
        for (int i = 0; i < FILES; i++) {
            snprintf(path, sizeof path, "%s/%s/%c", folder, sets[s], 'a' + i % CLASSES);
            mkdir(path, 0755);
            snprintf(path, sizeof path, "%s/%s/%c/%02d.jpg", folder, sets[s], 'a' + i % CLASSES, i);
            struct stat st;
            if (stat(path, &st) == 0) continue;
            if (!write_jpeg(path, s ? 64 : 500, s ? 64 : 375, (unsigned)i + 1)) {
                fprintf(stderr, "bench_data: %s cannot be written\n", path);
                return false;
            }
        }
    }
    return true;
}

/* ---- measuring ---- */

static bool measure(const struct bench_case *c, const char *folder, int images, int threads)
{
    char path[1024];
    tp_augment a;
    tp_image_batch b;
    snprintf(path, sizeof path, "%s/%s", folder, c->folder);
    tp_augment_recipe(&a, c->recipe, c->size);
    a.mix = (tp_mix){ 0 };
    if (c->plain) a.ops = 0, a.erase = 0;
    tp_image_set *X = tp_image_set_open(path, TP_LAYOUT_FOLDER, TP_TRAIN);
    tp_loader *L = tp_image_loader_new(
        X, &(tp_image_loader_opts){
               .augment = &a, .batch = BATCH, .threads = threads, .ahead = 1, .train = true });
    double begun = 0;
    int n = -BATCH; /* the first batch warms up */
    while (n < images && tp_image_loader_next(L, &b)) {
        n += BATCH;
        if (n > 0) continue;
        begun = now();
    }
    const double seconds = now() - begun;
    const bool done = tp_loader_ok(L);
    if (done)
        printf("{\"data\": \"%s\", \"images\": %d, \"threads\": %d, \"images_per_s\": %.1f}\n",
               c->name, n, threads, n / seconds);
    else
        fprintf(stderr, "bench_data: %s\n", tp_loader_why(L));
    tp_loader_free(L);
    tp_image_set_close(X);
    return done;
}

typedef struct settings {
    char *folder;
    int64_t images, threads;
} settings;

static const tp_option table[] = {
    TP_HEADING("OPTIONS"),
    TP_STRING("folder", settings, folder, "DIR", 0,
              "The folder of the image files, which are created if missing."),
    TP_INT("images", settings, images, BATCH, 1000000, 0, "Number of images in each case."),
    TP_INT("threads", settings, threads, 1, 256, 0, "Threads of the loader."),
    { 0 },
};

static bool check(const void *options, char *why, size_t size)
{
    const settings *s = options;
    if (!s->folder) snprintf(why, size, "--folder DIR is required");
    return s->folder;
}

static const tp_command manual = {
    .name = "bench_data",
    .summary = "measures the speed of the image loader",
    .about =
        "Reads, decodes and augments JPEG files by the recipes of training and prints images per "
        "second of CPU time as JSON lines.",
    .table = table,
    .check = check,
};

static bool run(void *options, char *why, size_t size)
{
    const settings *s = options;
    (void)why, (void)size; /* errors are printed where they occur */
    timer = CLOCK_PROCESS_CPUTIME_ID;
    bool done = make_images(s->folder);
    for (size_t i = 0; done && i < sizeof cases / sizeof *cases; i++)
        done = measure(&cases[i], s->folder, (int)s->images, (int)s->threads);
    return done;
}

int main(int argc, char **argv)
{
    settings s = { .images = 1024, .threads = 1 };
    return tp_command_main(&manual, argc - 1, argv + 1, &s, run);
}
