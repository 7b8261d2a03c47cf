/* fuzz_image.c - the input is seven bytes of options and an image:
 *
 *     shrink, orient, strict    x, y, width, height of a box    recipe and size    the file
 *
 * Besides memory safety the following must hold: an image has the announced size, a box of it holds
 * the same pixels, strict decoding gives the same pixels, and pipelines produce finite numbers from
 * every image. */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/augment.h>

enum { OPTIONS = 7, PIXELS = 1 << 16, LARGEST = 48 };

static void check_size(const tp_image *p, const uint8_t *file, size_t size)
{
    int64_t width = 0, height = 0;
    fuzz_demand(tp_image_size(file, size, &width, &height), "an image has a size");
    fuzz_demand(width == p->width && height == p->height, "an image is as large as announced");
    fuzz_demand(width * height <= PIXELS, "the limit is kept");
}

/* A box changes only which pixels are kept. Decoding it may miss damage elsewhere. */
static void check_box(const tp_image *all, const uint8_t *input, const uint8_t *file, size_t size)
{
    tp_image part = { 0 };
    tp_image_opts o = { .max_pixels = PIXELS };
    o.box.x = input[1] % all->width;
    o.box.y = input[2] % all->height;
    o.box.width = 1 + input[3] % (all->width - o.box.x);
    o.box.height = 1 + input[4] % (all->height - o.box.y);
    if (tp_image_decode(&part, file, size, &o)) {
        fuzz_demand(part.width == o.box.width && part.height == o.box.height, "a box has its size");
        for (int64_t y = 0; y < part.height; y++)
            fuzz_demand(memcmp(part.rgb + y * part.width * 3,
                               all->rgb + ((o.box.y + y) * all->width + o.box.x) * 3,
                               (size_t)part.width * 3) == 0,
                        "a box holds the pixels of the image");
    }
    tp_image_free(&part);
}

static void check_strict(const tp_image *all, const uint8_t *file, size_t size)
{
    tp_image p = { 0 };
    const tp_image_opts o = { .max_pixels = PIXELS, .strict = true };
    if (tp_image_decode(&p, file, size, &o))
        fuzz_demand(memcmp(p.rgb, all->rgb, (size_t)(p.width * p.height) * 3) == 0,
                    "strictness changes no pixels");
    tp_image_free(&p);
}

static void decode_anyhow(const uint8_t *input, const uint8_t *file, size_t size)
{
    tp_image p = { 0 };
    const tp_image_opts o = { .max_pixels = PIXELS,
                              .shrink = 1 << input[0] % 4,
                              .orient = input[0] & 4,
                              .strict = input[0] & 8 };
    const bool ok = tp_image_decode(&p, file, size, &o);
    fuzz_demand(ok == tp_image_ok(&p), "what is decoded is an image");
    fuzz_demand_reason(ok, p.why);
    tp_image_free(&p);
}

static void augment(const uint8_t *input, const uint8_t *file, size_t size)
{
    static const char *const recipes[] = { "vil", "finetune", "eval", "none" };
    static float out[LARGEST * LARGEST * 3];
    tp_augment a;
    tp_augment_work w = { 0 };
    fuzz_demand(tp_augment_recipe(&a, recipes[input[5] % 4], 1 + input[6] % LARGEST), "a recipe");
    a.decode.max_pixels = PIXELS;
    a.shrink = input[5] & 4;
    const bool ok = tp_augment_bytes(&a, &w, file, size, (tp_example){ input[5], 0, 0 }, out);
    fuzz_demand_reason(ok, w.why);
    for (int64_t i = 0; ok && i < a.size * a.size * 3; i++)
        fuzz_demand(isfinite(out[i]), "pixels are numbers");
    tp_augment_work_free(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    tp_image p = { 0 };
    if (size < OPTIONS) return 0;
    const uint8_t *file = input + OPTIONS;
    size -= OPTIONS;
    if (tp_image_decode(&p, file, size, &(tp_image_opts){ .max_pixels = PIXELS })) {
        check_size(&p, file, size);
        check_box(&p, input, file, size);
        check_strict(&p, file, size);
    }
    tp_image_free(&p);
    decode_anyhow(input, file, size);
    augment(input, file, size);
    return 0;
}
