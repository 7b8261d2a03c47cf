/* class_names.c - see the header. */
#include "class_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void class_names_write(tp_writer *W, const tp_image_set *X)
{
    const int n = tp_image_set_classes(X);
    size_t bytes = 1;
    for (int i = 0; i < n; i++) bytes += strlen(tp_image_set_class(X, i)) + 1;
    char *text = malloc(bytes), *at = text;
    for (int i = 0; text && i < n; i++) at += sprintf(at, "%s\n", tp_image_set_class(X, i));
    if (text) tp_writer_meta(W, "class_names", text);
    free(text);
}

const char *class_name(const char *text, int64_t i, char *buf, size_t size)
{
    for (int64_t k = 0; text && *text && k < i; k++) {
        text = strchr(text, '\n');
        if (text) text++;
    }
    if (text && *text)
        snprintf(buf, size, "%.*s", (int)strcspn(text, "\n"), text);
    else
        snprintf(buf, size, "class %lld", (long long)i);
    return buf;
}

bool class_names_agree(const char *text, const tp_image_set *X, char *why, size_t size)
{
    for (int i = 0; text && i < tp_image_set_classes(X); i++) {
        char theirs[256];
        class_name(text, i, theirs, sizeof theirs);
        if (strncmp(theirs, tp_image_set_class(X, i), sizeof theirs - 1) == 0) continue;
        snprintf(why, size, "class %d is '%s' in the model and '%s' in the images", i, theirs,
                 tp_image_set_class(X, i));
        return false;
    }
    return true;
}
