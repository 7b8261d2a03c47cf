/* set.h - a set of images, as the readers of the layouts fill it. */
#ifndef TP_IMAGES_INNER_H
#define TP_IMAGES_INNER_H

#include <tapegrad/image_set.h>

enum { TP_IMAGES_WHY = 1024 };

/* An image is a file, or begins at an offset of one (a tar header, a CIFAR record). */
typedef struct tp_image_item {
    size_t path; /* offset into text */
    int64_t offset;
    int32_t label;
} tp_image_item;

/* The shapes that shapes.c draws. */
typedef struct tp_shapes {
    int64_t side; /* pixels                            */
    tp_part part; /* each part has images of its own   */
} tp_shapes;

struct tp_image_set {
    tp_layout layout;
    tp_image_item *item;
    int64_t count, room;
    char *text; /* all names, each with its NUL */
    size_t used, text_room;
    size_t *class_at; /* offsets into text */
    int classes, class_room;
    tp_image_source source; /* draw is NULL for files */
    tp_shapes shapes;       /* env of the source of tp_image_set_shapes */
    char why[TP_IMAGES_WHY];
};

/* ---- set_items.c: functions that layouts call; they return false if the set has failed ---- */

tp_image_set *tp__image_set_new(void); /* empty, or failed if out of memory   */
bool tp__image_set_fail(tp_image_set *X, const char *fmt, ...) TP_PRINTF(2, 3);
size_t tp__image_set_text(tp_image_set *X, const char *s); /* copies s; returns its offset */
bool tp__image_set_class(tp_image_set *X, const char *name);
bool tp__image_set_item(tp_image_set *X, size_t path, int64_t offset, int32_t label);
bool tp__image_set_sort(tp_image_set *X); /* sorts the classes by name; labels stay as they are */
/* The label of a class, or -1. The classes must be sorted by name. */
int32_t tp__image_set_label(const tp_image_set *X, const char *name);

/* ---- set_files.c ---- */

/* Writes FOLDER/NAME into buf, and returns it. */
const char *tp__join(char *buf, size_t size, const char *folder, const char *name);
/* Does a folder or file exist? X fails if the file system cannot tell. */
bool tp__is_folder(tp_image_set *X, const char *path);
bool tp__is_file(tp_image_set *X, const char *path);
bool tp__is_image(const char *name); /* .jpg, .jpeg, .png */
bool tp__is_shard(const char *name); /* .tar              */

/* Lists the folders or the files in a folder, sorted by bytes, without names that begin with a dot.
 * Free the list with tp__entries_free. -1: the folder cannot be read; X fails unless the folder
 * does not exist. */
int tp__entries(tp_image_set *X, const char *path, bool folders, char ***names);
void tp__entries_free(char **names, int n);

/* Calls f for each non-empty line of a text file (which may be compressed), without the line end,
 * until f returns false. */
bool tp__each_line(tp_image_set *X, const char *path,
                   bool (*f)(tp_image_set *X, char *line, void *env), void *env);

/* ---- set_folders.c, set_lists.c, set_shards.c: one reader for each layout ---- */

void tp__read_folder(tp_image_set *X, const char *folder, tp_part part);
void tp__read_imagenet(tp_image_set *X, const char *folder, tp_part part);
void tp__read_ip102(tp_image_set *X, const char *folder, tp_part part);
void tp__read_food101(tp_image_set *X, const char *folder, tp_part part);
void tp__read_mini_imagenet(tp_image_set *X, const char *folder, tp_part part);
void tp__read_cifar10(tp_image_set *X, const char *folder, tp_part part);
void tp__read_test(tp_image_set *X, const char *folder, tp_part part);
void tp__read_shards(tp_image_set *X, const char *folder, tp_part part);

/* The bytes of the entry whose header is at an offset of a tar file, to be freed. NULL on failure,
 * with the reason in why. */
void *tp__shard_entry(const char *path, int64_t offset, size_t *n, char *why, size_t size);

#endif
