/* loader.h - images and their objects as detectors take them: resized, mirrored, normalised, in
 * batches (detection library). */
#ifndef TAPEGRAD_DETECTION_LOADER_H
#define TAPEGRAD_DETECTION_LOADER_H

#include <tapegrad/detection/objects.h>
#include <tapegrad/loader.h>
#include <tapegrad/scenes.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- where images come from ---- */

/* Annotations, and the folder with the images' files, or the scenes that are drawn. Both must stay
 * open. */
typedef struct tp_object_source {
    const tp_coco *coco;
    /* Image i is the file FOLDER/NAME, or NAME if that is absolute, rotated by its EXIF
     * orientation. */
    const char *folder;
    const tp_scenes *scenes; /* not NULL: image i is drawn, and coco is that of the scenes */
    int64_t max_pixels;      /* larger images cannot be read; 0: 100 million */
} tp_object_source;

/* Reads or draws image i. False with the reason in p->why, which names the file; also if its size
 * is not that of the annotations, or if the file is cut off, because its objects may be in the
 * missing part. */
TP_API bool tp_object_source_read(const tp_object_source *s, int64_t i, tp_image *p);
/* Checks, without reading them, that the files of all images exist, or of those with annotated
 * objects. missing [images] becomes true for each absent one. Returns their number, with the first
 * named in why; -1: the disk failed, with the reason in why. */
TP_API int64_t tp_object_source_look(const tp_object_source *s, bool with_objects, bool *missing,
                                     char *why, size_t size);
/* A hash of images and objects: names, sizes, boxes, categories. A resumed run must find the
 * same. */
TP_API uint64_t tp_object_source_hash(const tp_object_source *s);

/* ---- from an image to the network's input ---- */

/* How an image is shown to a network. */
typedef struct tp_object_view {
    int64_t from[2], to[2]; /* height, width of the image, and after resizing */
    bool mirror;            /* left and right are exchanged after resizing */
    tp_detection_profile profile;
} tp_object_view;

/* Resizes bilinearly, then mirrors. detectron2: like Pillow, with antialiasing; mmdetection: like
 * OpenCV, without. out and in must differ. */
TP_API bool tp_view_image(const tp_object_view *v, const tp_image *in, tp_image *out);
/* The box x, y, w, h of an image in the view, clipped to it; n numbers x, y, x, y ... of an
 * outline, not clipped. */
TP_API tp_corners tp_view_box(const tp_object_view *v, const double box[4]);
TP_API void tp_view_outline(const tp_object_view *v, const double *xy, int64_t n, double *out);
/* A mask of an image in the view, resized to the nearest pixel as the profile does. False: out of
 * memory. */
TP_API bool tp_view_mask(const tp_object_view *v, const tp_rle *in, tp_rle *out);

/* A side of an image padded to the next multiple. Detectors take sides that are multiples of 32. */
enum { TP_SIDE_MULTIPLE = 32 };
TP_API int64_t tp_padded_side(int64_t n, int64_t multiple);

/* How pixels from 0 to 255 become numbers, by channel: red, green, blue. */
typedef struct tp_pixel_scale {
    float mean[3], std[3];
} tp_pixel_scale;
extern TP_API const tp_pixel_scale tp_pixels_imagenet;
/* (pixel - mean) / std at the top left of out [height,width,3], zeros elsewhere. */
TP_API void tp_view_floats(const tp_image *p, const tp_pixel_scale *scale, int64_t height,
                           int64_t width, float *out);

/* ---- batches ---- */

enum { TP_OBJECT_SIZES = 16 };

/* Zero means the value in brackets. */
typedef struct tp_object_loader_opts {
    int64_t batch;
    uint64_t seed;
    /* true: images with objects, in random order, mirrored at random, in a random one of the sizes,
     * whole batches. false: all images in the order of the file, in the first size; the last batch
     * may be smaller. */
    bool train;
    int64_t size[TP_OBJECT_SIZES]; /* of the shorter side [800] */
    int sizes;                     /* how many [1] */
    int64_t most;                  /* the longer side is at most this [1333] */
    bool no_mirror;
    tp_pixel_scale scale; /* std is positive [tp_pixels_imagenet] */
    int64_t multiple;     /* batches are padded to multiples of this, itself one of 32 [32] */
    bool masks;           /* objects have polygons or runs; those with neither are dropped */
    /* How images are resized, and which objects count. detectron2: objects are dropped whose sides
     * in the image or the view are at most 1e-5. mmdetection: those with a side below 1 or no area
     * in the file, and images with a side below 32. Crowds, boxes of no or negative size, and
     * objects none of whose polygons can be drawn, are always dropped. */
    tp_detection_profile profile;
    int threads; /* workers [1] */
    int ahead;   /* batches made ahead, at least 2 [3] */
    /* Reports an image that cannot be read, once. Training takes the next one in its place;
     * otherwise it is left out of its batch. The loader fails if bad is NULL, if no image can be
     * read, and if memory or open files ran out or the disk failed. */
    void (*bad)(void *env, const char *name, const char *why);
    /* [images of the annotations]: known to be unreadable; neither read nor reported */
    const bool *missing;
    void *env;
    /* In place of the random order, before batches are cut; NULL: none. It must outlive the loader.
     * It numbers the images of the annotations; in training the next one with objects takes the
     * place of one without, and one that cannot be read is left out of its batch */
    const tp_example_sampler *sampler;
    tp_share share; /* the part of each batch that this process reads; zero: all of it */
} tp_object_loader_opts;

/* Valid until the next call for a batch. */
typedef struct tp_object_batch {
    int64_t n;             /* at least 1 */
    int64_t height, width; /* padded */
    const float *x;        /* [n,height,width,3] */
    /* [n] height, width: in the batch without padding, and of the image as it was read */
    const int64_t (*size)[2], (*original)[2];
    const int64_t *image;      /* [n] positions among the images of the annotations */
    const tp_objects *objects; /* [n] in training, else without objects */
    int64_t epoch, step;
} tp_object_batch;

/* Batches (loader.h) that depend only on seed and epoch. In training, a random permutation of the
 * images fills a batch of wide ones (width > height) and a batch of the others, each of which is
 * emitted when full; at the end of the epoch the rest is mixed, and an incomplete batch is
 * dropped. Processes that share a batch pad to the largest image of all their rows, as far as the
 * annotations give sizes. */
TP_API tp_loader *tp_object_loader_new(const tp_object_source *s, const tp_object_loader_opts *o);
TP_API int64_t tp_object_loader_images(const tp_loader *L); /* used */
/* The objects left out in training, by reason. */
TP_API const tp_coco_tally *tp_object_loader_noted(const tp_loader *L);
/* True if image i of the annotations is used and known to be unreadable. */
TP_API bool tp_object_loader_unread(tp_loader *L, int64_t i);
/* Height and width of the largest batch that can occur. */
TP_API void tp_object_loader_largest(const tp_loader *L, int64_t size[2]);
/* The next batch. False: a failure, or not in training, the end. */
TP_API bool tp_object_loader_next(tp_loader *L, tp_object_batch *b);

#ifdef __cplusplus
}
#endif
#endif
