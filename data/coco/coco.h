/* coco.h - a set of annotations, and what its readers share. */
#ifndef TP_COCO_H
#define TP_COCO_H

#include <stdarg.h>
#include <tapegrad/coco.h>

#include "json_walk.h"

enum { TP_COCO_WHY = 1024, TP_COCO_NAME = 400 };

/* A growing array. */
typedef struct tp_pool {
    void *items;
    size_t count, room;
} tp_pool;

/* Adds room for n items of `size` bytes. NULL: out of memory. */
void *tp__pool_add(tp_pool *p, size_t n, size_t size);

typedef struct tp_coco_category {
    int64_t id;
    size_t name; /* offset in the texts */
} tp_coco_category;

/* A polygon, or the runs of a mask, in the pools. */
typedef struct tp_coco_part {
    size_t first;
    int64_t n;
    int64_t height, width; /* of a mask */
} tp_coco_part;

/* An object before all images and categories are known: o.image is still an id. */
typedef struct tp_coco_raw {
    tp_coco_object o;
    int64_t category;
    int64_t index;  /* from 1, for messages */
    const char *at; /* its place in the text being read, or NULL */
} tp_coco_raw;

/* An image while the texts may still move. */
typedef struct tp_coco_raw_image {
    int64_t id, height, width;
    size_t file;
} tp_coco_raw_image;

struct tp_coco {
    char why[TP_COCO_WHY], name[TP_COCO_NAME]; /* name of the file, for messages */
    tp_coco_tally noted;
    tp_pool raw_images, raws;     /* only while reading */
    tp_pool categories, parts;    /* tp_coco_category, tp_coco_part */
    tp_pool numbers, runs, texts; /* double, uint32_t, char */
    tp_coco_image *image;
    tp_coco_object *object;
    int64_t images, objects;
    int64_t *by_id; /* positions of the images, by ascending id */
};

tp_coco *tp__coco_new(const char *name);
void tp__coco_fail(tp_coco *X, const char *fmt, ...) TP_PRINTF(2, 3);

/* These add to X. If memory runs out: X fails; false or NULL. */
bool tp__coco_image(tp_coco *X, int64_t id, int64_t height, int64_t width, const char *file);
bool tp__coco_category(tp_coco *X, int64_t id, const char *name);
tp_coco_raw *tp__coco_object(tp_coco *X); /* zeroed */
tp_coco_part *tp__coco_part(tp_coco *X, tp_coco_object *o, tp_pool *pool, int64_t n, size_t size);

/* Sorts everything after reading; w (or NULL) locates annotations in the text, for messages. */
void tp__coco_finish(tp_coco *X, tp_json_walk *w);

/* Reads the segmentation {"size": [h,w], "counts": text or list} of an item; free *r. */
bool tp__item_mask(tp_json_item *i, const json_t *segmentation, tp_rle *r);

#endif
