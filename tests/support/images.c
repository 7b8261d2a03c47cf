/* images.c - writes folders of coloured images. */
#include "support/images.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <tapegrad/image.h>

#include "support/program.h"

static void write_image(const char *name, int red, int blue)
{
    tp_image p = { 0 };
    cr_assert(tp_image_new(&p, 20, 16));
    for (int i = 0; i < 20 * 16; i++) {
        p.rgb[3 * i] = (uint8_t)red;
        p.rgb[3 * i + 1] = 90;
        p.rgb[3 * i + 2] = (uint8_t)blue;
    }
    cr_assert(tp_image_write(&p, name), "%s", p.why);
    tp_image_free(&p);
}

void make_colours(const char *name, int n)
{
    char path[200];
    snprintf(path, sizeof path, "mkdir -p %s/train/blue %s/train/red %s/val/blue %s/val/red", name,
             name, name, name);
    cr_assert(shell(path));
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < n + 4; i++) {
            snprintf(path, sizeof path, "%s/%s/%s/%02d.png", name, i < n ? "train" : "val",
                     k ? "red" : "blue", i);
            write_image(path, k ? 150 + i : i, k ? i : 150 + i);
        }
}
