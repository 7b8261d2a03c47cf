/* support_image_sets.c - small image sets in the test's own folder. */
#include "support_image_sets.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "support_folder.h"

void write_text(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "wb");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", name);
}

void write_image(const char *name, int colour)
{
    tp_image p = { 0 };
    cr_assert(tp_image_new(&p, 40, 36));
    memset(p.rgb, colour, (size_t)(40 * 36 * 3));
    cr_assert(tp_image_write(&p, in_folder(name)), "%s", p.why);
    tp_image_free(&p);
}

void make(const char *name)
{
    cr_assert(mkdir(in_folder(name), 0755) == 0, "%s", name);
}

void make_classes(const char *name, int n, int colour)
{
    static const char *const classes[] = { "cat", "dog" };
    char path[128];
    make(name);
    for (int k = 0; k < 2; k++) {
        snprintf(path, sizeof path, "%s/%s", name, classes[k]);
        make(path);
        for (int i = 0; i < n; i++) {
            snprintf(path, sizeof path, "%s/%s/%02d.png", name, classes[k], i);
            write_image(path, colour + 10 * i + k);
        }
    }
}

tp_image_set *open_set(const char *name, tp_layout layout, tp_part part)
{
    return tp_image_set_open(in_folder(name), layout, part);
}
