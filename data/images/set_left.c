/* set_left.c - what a set leaves out: counted, and the first few of each kind named. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "set.h"

enum { NAMED = 3 };

void tp__image_set_left(tp_image_set *X, tp_left_kind kind, const char *fmt, ...)
{
    char name[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    tp_left *l = &X->left[kind];
    const size_t n = strlen(l->names);
    if (l->count++ >= NAMED) return;
    snprintf(l->names + n, sizeof l->names - n, "%s%.150s", n ? ", " : "", name);
}

void tp__image_set_note(tp_image_set *X)
{
    static const struct {
        const char *one, *many;
    } kinds[TP_NLEFT] = {
        [TP_LEFT_FILE] = { "file that is neither .jpg, .jpeg nor .png",
                           "files that are neither .jpg, .jpeg nor .png" },
        [TP_LEFT_EMPTY] = { "folder without images, which is no class",
                            "folders without images, which are no classes" },
        [TP_LEFT_LOOSE] = { "image outside the folders of classes",
                            "images outside the folders of classes" },
        [TP_LEFT_DEEP] = { "folder inside a class", "folders inside classes" },
        [TP_LEFT_LINK] = { "link to a folder that contains it",
                           "links to folders that contain them" },
        [TP_LEFT_BESIDE] = { "folder beside those of the parts",
                             "folders beside those of the parts" },
        [TP_LEFT_PACKED] = { "packed shard; unpack it to .tar",
                             "packed shards; unpack them to .tar" },
        [TP_LEFT_NO_PART] = { "shard whose name tells no part", "shards whose names tell no part" },
        [TP_LEFT_SECOND] = { "image that is not the first KEY.jpg, KEY.jpeg or KEY.png of its key",
                             "images that are not the first KEY.jpg, KEY.jpeg or KEY.png of their keys" },
        [TP_LEFT_KEY] = { "key of a shard without an image KEY.jpg, KEY.jpeg or KEY.png",
                          "keys of shards without an image KEY.jpg, KEY.jpeg or KEY.png" },
        [TP_LEFT_LINKED] = { "link in a shard", "links in shards" },
    };
    size_t n = 0;
    for (int k = 0; k < TP_NLEFT && n < sizeof X->note; k++) {
        const tp_left *l = &X->left[k];
        if (l->count == 0) continue;
        n += (size_t)snprintf(X->note + n, sizeof X->note - n, "%s%lld %s (%s%s)",
                              n ? "; " : "left out: ", (long long)l->count,
                              l->count == 1 ? kinds[k].one : kinds[k].many, l->names,
                              l->count > NAMED ? ", ..." : "");
    }
}
