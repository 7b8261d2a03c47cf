/* set.h - a set of images while it is filled by a layout. */
#ifndef TP_IMAGES_INNER_H
#define TP_IMAGES_INNER_H

#include <tapegrad/image_set.h>

enum { TP_IMAGES_WHY = 1024 };

/* Where an image is: a file, or from an offset of one (tar header, CIFAR record). */
typedef struct tp_image_item {
    size_t path; /* in text */
    int64_t offset;
    int32_t label;
} tp_image_item;

/* Shapes that shapes.c draws. */
typedef struct tp_shapes {
    int64_t side; /* pixels */
    tp_part part; /* parts have other images */
} tp_shapes;

struct tp_image_set {
    tp_layout layout;
    tp_image_item *item;
    int64_t count, room;
    char *text; /* all names, each with its NUL */
    size_t used, text_room;
    size_t *class_at; /* in text */
    int classes, class_room;
    tp_image_source source; /* draw is NULL for files */
    tp_shapes shapes;       /* env of tp_image_set_shapes' source */
    char why[TP_IMAGES_WHY];
};

/* What layouts call. All are false if the set has failed (out of memory, ...). */
bool tp__image_set_fail(tp_image_set *X, const char *fmt, ...) TP_PRINTF(2, 3);
size_t tp__image_set_text(tp_image_set *X, const char *s); /* keeps a copy of s; its place */
bool tp__image_set_class(tp_image_set *X, const char *name);
bool tp__image_set_item(tp_image_set *X, size_t path, int64_t offset, int32_t label);
/* The label of a class, which must be one of them, or -1. Classes are sorted by name. */
int32_t tp__image_set_label(const tp_image_set *X, const char *name);

/* FOLDER/NAME in buf. */
const char *tp__join(char *buf, size_t size, const char *folder, const char *name);
/* Is there such a folder or file? Where a disk does not tell, X fails. */
bool tp__is_folder(tp_image_set *X, const char *path);
bool tp__is_file(tp_image_set *X, const char *path);
bool tp__is_image(const char *name); /* .jpg, .jpeg, .png */

/* The entries of a folder, sorted as bytes, without those that begin with a dot; folders (or, if
 * not, files) only. Free each and the list. -1: it cannot be read; then X has failed, unless there is
 * no such folder. */
int tp__entries(tp_image_set *X, const char *path, bool folders, char ***names);
void tp__entries_free(char **names, int n);

/* Calls f for each line of a text file (packed ones too) without its end; empty lines are left out.
 * Stops where f is false. */
bool tp__each_line(tp_image_set *X, const char *path,
                   bool (*f)(tp_image_set *X, char *line, void *env), void *env);

/* One reader for each layout, in set_lists.c and set_folders.c, set_shards.c. */
void tp__read_folder(tp_image_set *X, const char *folder, tp_part part);
void tp__read_imagenet(tp_image_set *X, const char *folder, tp_part part);
void tp__read_ip102(tp_image_set *X, const char *folder, tp_part part);
void tp__read_food101(tp_image_set *X, const char *folder, tp_part part);
void tp__read_mini_imagenet(tp_image_set *X, const char *folder, tp_part part);
void tp__read_cifar10(tp_image_set *X, const char *folder, tp_part part);
void tp__read_shards(tp_image_set *X, const char *folder, tp_part part);

/* The bytes of the entry whose header is at an offset of a tar file; to be freed. NULL: why. */
void *tp__shard_entry(const char *path, int64_t offset, size_t *n, char *why, size_t size);

#endif
