/* coco.h - object annotations from COCO's files and Pascal VOC's folders, and lists of detections
 * (data library).
 *
 * Boxes are x, y, w, h in pixels, as in the files. Files refer to images and categories by ids;
 * functions refer to images by their position in the file and to categories by numbers from 0, in
 * ascending order of their ids. */
#ifndef TAPEGRAD_COCO_H
#define TAPEGRAD_COCO_H

#include <tapegrad/data.h>
#include <tapegrad/rle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- annotations ---- */

/* Annotations of one set of images; immutable once open, so threads may share them. */
typedef struct tp_coco tp_coco;

typedef struct tp_coco_image {
    int64_t id, height, width; /* 0 x 0: unknown */
    const char *file;          /* the name of the image's file; "": unknown */
    int64_t first, objects;    /* its objects are first ... first + objects - 1 */
} tp_coco_image;

/* How the mask of an object is stored. */
typedef enum tp_coco_form { TP_COCO_NO_MASK, TP_COCO_POLYGONS, TP_COCO_RUNS } tp_coco_form;

typedef struct tp_coco_object {
    int64_t id;
    int64_t image; /* position among the images */
    int category;
    bool crowd;    /* a region with many objects (iscrowd) */
    bool ignore;   /* VOC: a difficult object, which evaluation ignores; COCO: false */
    double box[4]; /* x, y, w, h */
    /* as in the file, where it may differ from that of box or mask; if absent, the area of the runs
     * or else of the box */
    double area;
    tp_coco_form form;
    int64_t first, parts; /* for tp_coco_polygon and tp_coco_mask */
} tp_coco_object;

/* Why an object is left out, or what is unusual about it. Readers note the first two and the last
 * three, a training loader (detection/loader.h) the others. */
typedef enum tp_coco_reason {
    TP_COCO_UNKNOWN_IMAGE,
    TP_COCO_UNKNOWN_CATEGORY,
    TP_COCO_CROWD,
    TP_COCO_EMPTY_BOX, /* width or height is 0 or negative */
    TP_COCO_OUTSIDE,   /* no part of the box is in the image */
    TP_COCO_TINY,      /* a side below 1 or no area, which mmdetection leaves out */
    TP_COCO_NO_OUTLINE,
    TP_COCO_BAD_POLYGONS, /* each has fewer than 3 points or an odd number of coordinates */
    TP_COCO_EMPTY_RUNS,
    TP_COCO_SMALL_IMAGE,  /* mmdetection leaves out images with a side below 32 */
    TP_COCO_CUT_POLYGONS, /* used without its bad polygons */
    TP_COCO_LEFT_OUT,     /* number of reasons to leave something out */
    TP_COCO_WITHOUT_AREA = TP_COCO_LEFT_OUT,
    TP_COCO_ID_0, /* pycocotools counts a match with it as none, as does tp_coco_eval */
    TP_COCO_IMAGE_ID_0,
    TP_COCO_REASONS
} tp_coco_reason;

/* For each reason, the number of objects (or results, images) and the id of the first. */
typedef struct tp_coco_tally {
    int64_t count[TP_COCO_REASONS], first[TP_COCO_REASONS];
} tp_coco_tally;
TP_API void tp_coco_tally_add(tp_coco_tally *t, tp_coco_reason reason, int64_t id);
/* Describes what is left out: "2 of a crowd (the first: annotation 7), 1 ...". what: "annotation".
 * Returns their number. text may be NULL. */
TP_API int64_t tp_coco_tally_text(const tp_coco_tally *t, const char *what, char *text,
                                  size_t size);

/* Reads a file of instances (instances_train2017.json), plain or compressed, one annotation at a
 * time: memory holds the file and the result only. Never NULL: tp_coco_why names the file, the
 * annotation and the byte and line. Annotations of images or categories that the file does not list
 * are dropped, as in pycocotools, and counted. Errors: duplicate ids, missing members other than
 * 'area', masks not of the size of their image. Memory is at most 40 times the size of the plain
 * file, and while a single annotation is read, 150 times that of its text. */
TP_API tp_coco *tp_coco_open(const char *path);
/* The same from n bytes in memory, which may be freed afterwards; name is for messages. */
TP_API tp_coco *tp_coco_from(const char *bytes, size_t n, const char *name);
/* Reads a folder of Pascal VOC: Annotations/NAME.xml for each NAME in a list of ImageSets/Main.
 * TP_TRAIN reads trainval.txt or, if that is missing, train.txt; TP_VALID reads val.txt, TP_TEST
 * test.txt. Without ImageSets, every part has all files. As in torchvision and detectron2, an image
 * is the file of JPEGImages with its annotation's stem, whatever <filename> says: .jpg before other
 * endings. Without such a file it is the one that <filename> names, unless another annotation has
 * that stem. An image without <size> has an unknown one. Files left there by systems and tools
 * (`._NAME`) are skipped. VOC counts pixels from 1 and includes both ends of a box, so x and y are
 * xmin - 1 and ymin - 1, and w and h are xmax - xmin + 1 and ymax - ymin + 1. Categories are the
 * names in all annotations, sorted by their bytes, with ids from 1; ids of images are their
 * positions in the list, from 1. */
TP_API tp_coco *tp_coco_voc(const char *folder, tp_part part);
TP_API void tp_coco_close(tp_coco *X);
TP_API bool tp_coco_ok(const tp_coco *X);
TP_API const char *tp_coco_why(const tp_coco *X);

/* The numbers of images, objects and categories (0 after a failure), and of dropped annotations;
 * all that was noted. */
TP_API int64_t tp_coco_images(const tp_coco *X);
TP_API int64_t tp_coco_objects(const tp_coco *X);
TP_API int tp_coco_categories(const tp_coco *X);
TP_API int64_t tp_coco_dropped(const tp_coco *X);
TP_API const tp_coco_tally *tp_coco_noted(const tp_coco *X);
/* Image i in the order of the file. Object i: objects are ordered by image, and within an image as
 * in the file. */
TP_API const tp_coco_image *tp_coco_image_at(const tp_coco *X, int64_t i);
TP_API const tp_coco_object *tp_coco_object_at(const tp_coco *X, int64_t i);
TP_API int64_t tp_coco_category_id(const tp_coco *X, int category);
TP_API const char *tp_coco_category_name(const tp_coco *X, int category);
/* The position of the image, or the number of the category, with this id; -1: there is none. */
TP_API int64_t tp_coco_find_image(const tp_coco *X, int64_t id);
TP_API int tp_coco_find_category(const tp_coco *X, int64_t id);
/* Bytes of memory that X occupies. */
TP_API size_t tp_coco_bytes(const tp_coco *X);

/* Polygon k of an object that has polygons: *n numbers x, y, x, y ..., valid while X is open; NULL
 * if *n is 0. */
TP_API const double *tp_coco_polygon(const tp_coco *X, const tp_coco_object *o, int64_t k,
                                     int64_t *n);
/* The runs of an object that has runs. X owns them: do not free them. */
TP_API tp_rle tp_coco_runs(const tp_coco *X, const tp_coco_object *o);
/* The object's mask at the size of its image, which the caller frees: its runs, or the union of its
 * polygons by the published rules (if the first polygon has four numbers, all are boxes). False,
 * with the reason in why, which names the file and the annotation, if the object has no mask, the
 * size of the image is unknown, or memory runs out. */
TP_API bool tp_coco_mask(const tp_coco *X, const tp_coco_object *o, tp_rle *r, char *why,
                         size_t size);

/* ---- detections ---- */

typedef struct tp_detection {
    int64_t image; /* position among the images of the annotations */
    int category;
    double box[4]; /* x, y, w, h */
    double score;
    double area; /* of the box; of the mask if the file has no boxes */
    tp_rle mask; /* { 0 }: none */
} tp_detection;

/* Detections on the images of X, which must stay open. Never NULL; errors are sticky. */
typedef struct tp_detections tp_detections;
TP_API tp_detections *tp_detections_new(const tp_coco *X);
/* Reads a list of results in COCO's format, plain or compressed. As in pycocotools, the first
 * result decides what all of them have: boxes, or only masks, from which boxes and areas are then
 * computed. Masks are run-length encoded; a 'segmentation' of another form is an error unless it is
 * null or an empty list. A result for an unknown image is an error; results for unknown categories
 * are dropped and counted. */
TP_API tp_detections *tp_detections_open(const tp_coco *X, const char *path);
TP_API tp_detections *tp_detections_from(const tp_coco *X, const char *bytes, size_t n,
                                         const char *name);
TP_API void tp_detections_close(tp_detections *R);
TP_API bool tp_detections_ok(const tp_detections *R);
TP_API const char *tp_detections_why(const tp_detections *R);
/* Adds a detection and copies its mask. area 0: that of the box. R fails if there is no such image
 * or category, or if a number is not finite. */
TP_API void tp_detections_add(tp_detections *R, const tp_detection *d);
TP_API int64_t tp_detections_count(const tp_detections *R);
TP_API int64_t tp_detections_dropped(const tp_detections *R);
/* The same by reason; `first` is a result's number in the list, from 1. */
TP_API const tp_coco_tally *tp_detections_noted(const tp_detections *R);
TP_API const tp_detection *tp_detections_at(const tp_detections *R, int64_t i);
TP_API const tp_coco *tp_detections_coco(const tp_detections *R);
/* Writes the list in COCO's format of results, replacing the file when it is complete. False with
 * the reason in why. */
TP_API bool tp_detections_write(const tp_detections *R, const char *path, char *why, size_t size);

#ifdef __cplusplus
}
#endif
#endif
