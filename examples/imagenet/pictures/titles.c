/* titles.c - see the header. */
#include "titles.h"

#include <stdio.h>
#include <string.h>

const char *title_name(const char *path, char *buf, size_t size)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t from = end;
    while (from > 0 && path[from - 1] != '/') from--;
    if (from == end) from = 0; /* the root */
    snprintf(buf, size, "%.*s", (int)(end - from), path + from);
    return buf;
}

/* A run is called after its folder, another file by its name. */
static void name_file(const char *path, char *buf, size_t size)
{
    static const char *const of_runs[] = { "best.safetensors", "last.safetensors" };
    char file[300];
    title_name(path, file, sizeof file);
    for (int i = 0; i < 2; i++)
        if (strcmp(file, of_runs[i]) == 0 && strlen(path) > strlen(file)) {
            char folder[4200];
            snprintf(folder, sizeof folder, "%.*s", (int)(strlen(path) - strlen(file)), path);
            title_name(folder, buf, size);
            return;
        }
    snprintf(buf, size, "%s", file);
}

const char *title_model(const image_file *f, const char *preset, char *buf, size_t size)
{
    char name[300];
    if (!f->t.path[0]) {
        snprintf(buf, size, "%.200s, initial weights",
                 preset ? preset : classifier_family(&f->cfg));
        return buf;
    }
    name_file(f->t.path, name, sizeof name);
    if (f->update >= 0)
        snprintf(buf, size, "%s, update %lld", name, (long long)f->update);
    else if (preset)
        snprintf(buf, size, "%.200s, weights of %s", preset, name);
    else
        snprintf(buf, size, "%s", name);
    return buf;
}

const char *title_images(const char *data, tp_part part, char *buf, size_t size)
{
    static const char *const parts[] = {
        [TP_TRAIN] = "train", [TP_VALID] = "valid", [TP_TEST] = "test"
    };
    char name[300];
    snprintf(buf, size, "%s (%s)", data ? title_name(data, name, sizeof name) : "drawn shapes",
             parts[part]);
    return buf;
}
