/* coco_data.h - the images for training and evaluation: files in COCO's or VOC's layout, or drawn
 * scenes. */
#ifndef COCO_DATA_H
#define COCO_DATA_H

#include <jansson.h>
#include <tapegrad/detection/loader.h>
#include <tapegrad/options.h>

typedef struct coco_data {
    char *path;                         /* COCO's or VOC's folder; NULL: lists or drawn */
    char *list, *images;                /* training annotations and image folder */
    char *valid_list, *valid_images;    /* for validation; NULL: as for training */
    int64_t scenes, valid_scenes, side; /* drawn scenes */
    int64_t shapes, seed;
    int64_t max_pixels; /* read no larger images; 0: 100 million */
} coco_data;

/* Option rows for settings S with a coco_data member `at`. */
#define OPTION_COCO_PATH(S, at, tag)                                                               \
    TP_STRING("data", S, at.path, "DIR", tag,                                                      \
              "COCO's folder, with annotations/instances_train2017.json, instances_val2017.json, " \
              "train2017 and val2017 (or 2014), or a folder of Pascal VOC, with Annotations and "  \
              "JPEGImages. If neither this nor --annotations is given, scenes are drawn.")
#define OPTIONS_COCO_DATA(S, at)                                                                   \
    TP_STRING("annotations", S, at.list, "FILE", TP_FREE,                                          \
              "Annotations in COCO's format, instead of --data: of all images, or of those for "   \
              "training if --valid-annotations names others."),                                    \
        TP_STRING("images", S, at.images, "DIR", TP_FREE,                                          \
                  "The folder with the images that --annotations names."),                         \
        TP_STRING(                                                                                 \
            "valid-annotations", S, at.valid_list, "FILE", TP_FREE,                                \
            "Annotations for validation. Without them, the training images are validated on."),    \
        TP_STRING("valid-images", S, at.valid_images, "DIR", TP_FREE,                              \
                  "The folder of images for validation; not given: --images."),                    \
        TP_INT(                                                                                    \
            "max-pixels", S, at.max_pixels, 0, INT64_C(1) << 48, TP_FREE,                          \
            "Images of more pixels are not read, for they may take all memory; 0: 100 million.")
#define OPTIONS_COCO_SCENES(S, at)                                                                 \
    TP_INT("scenes", S, at.scenes, 1, 10000000, TP_SAVED, "Drawn scenes for training."),           \
        TP_INT("valid-scenes", S, at.valid_scenes, 1, 10000000, TP_SAVED,                          \
               "Drawn scenes for validation."),                                                    \
        TP_INT("scene-size", S, at.side, 32, 4096, TP_SAVED,                                       \
               "Longer side of drawn scenes, in pixels."),                                         \
        TP_INT("shapes", S, at.shapes, 1, 64, TP_SAVED, "The most shapes in a drawn scene."),      \
        TP_INT("data-seed", S, at.seed, 0, TP_BIG, TP_SAVED, "Seed of drawn scenes.")

void coco_data_defaults(coco_data *d);
bool coco_data_drawn(const coco_data *d);
/* False with the reason in why if two sources of images are given, or a path that would be
 * ignored. */
bool coco_data_check(const coco_data *d, char *why, size_t size);
void coco_data_absolute(coco_data *d);
void coco_data_free(coco_data *d);

/* One part of the data. */
typedef struct coco_set {
    tp_object_source source;
    tp_coco *read; /* NULL: drawn */
    tp_scenes *scenes;
    char folder[4200], name[4200];
    bool *missing;   /* [images] after coco_set_look */
    int64_t absent;  /* how many are missing */
    char first[600]; /* the first one, and why */
} coco_set;

/* Opens TP_TRAIN or TP_VALID. False with the reason in why. */
bool coco_set_open(coco_set *X, const coco_data *d, tp_part part, char *why, size_t size);
void coco_set_close(coco_set *X);
/* Can all images be looked up or drawn? Do all objects have masks that can be evaluated? If not,
 * why names the file and the first image or annotation. */
bool coco_set_has_images(const coco_set *X, char *why, size_t size);
bool coco_set_has_masks(const coco_set *X, char *why, size_t size);

/* Checks that the files of all images, or of those with objects, exist. False with the reason in
 * why if none does, if strict and one is missing, or on a disk error. */
bool coco_set_look(coco_set *X, bool with_objects, bool strict, char *why, size_t size);
/* Reports, one sentence at a time, annotations that figures do not count or treat specially:
 * dropped ones, those without an area, ids of 0. */
void coco_set_remarks(const coco_set *X, void (*say)(void *env, const char *text), void *env);

/* The categories as a JSON list of {"id", "name"}, also the form of a checkpoint's metadata. write:
 * false if out of memory. same: compares X with a text; why names the difference. */
json_t *coco_categories_json(const tp_coco *X);
bool coco_categories_write(const tp_coco *X, tp_writer *W);
bool coco_categories_same(const tp_coco *X, const char *text, char *why, size_t size);

#endif
