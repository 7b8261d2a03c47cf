/* image_sets.c - small image sets in the test's folder. */
#include "support/image_sets.h"

#include <archive.h>
#include <archive_entry.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/folder.h"

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

void write_shard(const char *name, const char *const *entries, int n)
{
    static uint8_t bytes[1 << 14];
    struct archive *a = archive_write_new();
    archive_write_set_format_pax_restricted(a);
    cr_assert(archive_write_open_filename(a, in_folder(name)) == ARCHIVE_OK);
    for (int i = 0; i < n; i++) {
        const char *is = strchr(entries[i], '=');
        char *path = strndup(entries[i], is ? (size_t)(is - entries[i]) : strlen(entries[i]));
        write_image("entry.png", 20 * i % 256);
        FILE *f = fopen(in_folder("entry.png"), "rb");
        size_t size = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        if (is) memcpy(bytes, is + 1, size = strlen(is + 1));
        struct archive_entry *e = archive_entry_new();
        archive_entry_set_pathname(e, path);
        archive_entry_set_size(e, (la_int64_t)size);
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_set_perm(e, 0644);
        cr_assert(archive_write_header(a, e) == ARCHIVE_OK);
        cr_assert(archive_write_data(a, bytes, size) == (la_ssize_t)size);
        archive_entry_free(e);
        free(path);
    }
    archive_write_free(a);
    unlink(in_folder("entry.png"));
}

tp_image_set *open_set(const char *name, tp_layout layout, tp_part part)
{
    return tp_image_set_open(in_folder(name), layout, part);
}
