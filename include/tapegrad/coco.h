/* coco.h - annotations of objects in COCO's files and Pascal VOC's folders, and lists of detections (data library).
 *
 * Boxes are x, y, w, h in pixels, as the files have them. Categories are numbered from 0 in ascending order of their
 * ids; functions speak of these numbers and of the places of images in the file, files of ids. */
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
    int64_t id, height, width; /* 0 x 0: the file does not say                     */
    const char *file;          /* its name, "": the file does not say              */
    int64_t first, objects;    /* its objects are first ... first + objects - 1    */
} tp_coco_image;

/* How an object's pixels are given. */
typedef enum tp_coco_form { TP_COCO_NO_MASK, TP_COCO_POLYGONS, TP_COCO_RUNS } tp_coco_form;

typedef struct tp_coco_object {
    int64_t id;
    int64_t image; /* its place among the images                                            */
    int category;
    bool crowd;    /* a region of many objects                                              */
    bool ignore;   /* VOC's difficult objects: neither found nor missed; false in COCO      */
    double box[4]; /* x, y, w, h                                                            */
    double area;   /* the file's, which need not follow from box or mask                    */
    tp_coco_form form;
    int64_t first, parts; /* for tp_coco_polygon and tp_coco_mask */
} tp_coco_object;

/* Reads a file of instances (instances_train2017.json), plain or compressed, one annotation after the other: memory
 * is that of the file and of the result. Never NULL: tp_coco_why names the file, the annotation and its place.
 * Annotations of images or of categories that the file does not list are dropped, as COCO's own reader drops them,
 * and counted. Errors are ids that occur twice, missing members, masks of another size than their image. */
TP_API tp_coco *tp_coco_open(const char *path);
/* The same from n bytes in memory, which may be freed afterwards; name is for messages. */
TP_API tp_coco *tp_coco_from(const char *bytes, size_t n, const char *name);
/* Reads a folder of Pascal VOC: Annotations/NAME.xml of the names in ImageSets/Main/trainval.txt, train.txt, val.txt or
 * test.txt. Training takes trainval if it is there, else train; validation val; without ImageSets all files are of
 * every part. Pixels of VOC begin with 1 and boxes include both ends, so a box is xmin - 1, ymin - 1, and its sides are
 * one longer than the difference. Categories are the names in all annotations, sorted by their bytes, with ids
 * from 1; ids of images are their places in the list, from 1. */
TP_API tp_coco *tp_coco_voc(const char *folder, tp_part part);
TP_API void tp_coco_close(tp_coco *X);
TP_API bool tp_coco_ok(const tp_coco *X);
TP_API const char *tp_coco_why(const tp_coco *X);

/* Numbers of images, objects and categories, 0 after a failure, and of dropped annotations. */
TP_API int64_t tp_coco_images(const tp_coco *X);
TP_API int64_t tp_coco_objects(const tp_coco *X);
TP_API int tp_coco_categories(const tp_coco *X);
TP_API int64_t tp_coco_dropped(const tp_coco *X);
/* Image i in the order of the file; object i, in the order of the images and, within one, of the file. */
TP_API const tp_coco_image *tp_coco_image_at(const tp_coco *X, int64_t i);
TP_API const tp_coco_object *tp_coco_object_at(const tp_coco *X, int64_t i);
TP_API int64_t tp_coco_category_id(const tp_coco *X, int category);
TP_API const char *tp_coco_category_name(const tp_coco *X, int category);
/* The place of the image, or of the category, with that id; -1: there is none. */
TP_API int64_t tp_coco_find_image(const tp_coco *X, int64_t id);
TP_API int tp_coco_find_category(const tp_coco *X, int64_t id);
/* Bytes of memory that X occupies. */
TP_API size_t tp_coco_bytes(const tp_coco *X);

/* Polygon k of an object that has polygons: *n numbers x, y, x, y ..., valid as long as X; NULL if *n is 0. */
TP_API const double *tp_coco_polygon(const tp_coco *X, const tp_coco_object *o, int64_t k,
                                     int64_t *n);
/* The object's mask at the size of its image, to be freed: the union of its polygons, by the published rules (first
 * polygon of four numbers: all are boxes), or its runs. False, with the reason in why, if it has no mask, the image no
 * size, or a polygon is refused by tp_rle_from_polygon. */
TP_API bool tp_coco_mask(const tp_coco *X, const tp_coco_object *o, tp_rle *r, char *why,
                         size_t size);

/* ---- detections ---- */

typedef struct tp_detection {
    int64_t image; /* its place among the images of the annotations  */
    int category;
    double box[4]; /* x, y, w, h                                     */
    double score;
    double area; /* of the box or, if the file has no boxes, of the mask */
    tp_rle mask; /* { 0 }: none                                      */
} tp_detection;

/* Detections on the images of X, which must stay open. Never NULL; errors are sticky. */
typedef struct tp_detections tp_detections;
TP_API tp_detections *tp_detections_new(const tp_coco *X);
/* Reads COCO's list of results, plain or compressed. As in COCO's reader the first result decides what all have: boxes,
 * or masks alone, whose boxes and areas are then those of the masks. Masks are runs; a 'segmentation'
 * of another form is an error unless it is null or an empty list. A result for an unknown image is an error; results
 * for unknown categories are dropped and counted. */
TP_API tp_detections *tp_detections_open(const tp_coco *X, const char *path);
TP_API tp_detections *tp_detections_from(const tp_coco *X, const char *bytes, size_t n,
                                         const char *name);
TP_API void tp_detections_close(tp_detections *R);
TP_API bool tp_detections_ok(const tp_detections *R);
TP_API const char *tp_detections_why(const tp_detections *R);
/* Adds a detection; the mask is copied. area 0: that of the box. R fails if there is no such image or category, or if
 * a number is not finite. */
TP_API void tp_detections_add(tp_detections *R, const tp_detection *d);
TP_API int64_t tp_detections_count(const tp_detections *R);
TP_API int64_t tp_detections_dropped(const tp_detections *R);
TP_API const tp_detection *tp_detections_at(const tp_detections *R, int64_t i);
TP_API const tp_coco *tp_detections_coco(const tp_detections *R);
/* Writes the list as COCO's results, replacing the file when it is complete. False with the reason in why. */
TP_API bool tp_detections_write(const tp_detections *R, const char *path, char *why, size_t size);

#ifdef __cplusplus
}
#endif
#endif
