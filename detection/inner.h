/* inner.h - functions shared by the files of detectors. */
#ifndef DETECTION_INNER_H
#define DETECTION_INNER_H

#include <tapegrad/detection/loader.h>
#include <tapegrad/detection/mask_rcnn.h>
#include <tapegrad/detection/retinanet.h>

/* Writes a sentence to why unless it is NULL; returns false. */
bool tp__refuse(char *why, size_t size, const char *fmt, ...) TP_PRINTF(3, 4);

/* Returns false and fails T if the parameters of `model` failed or images have impossible sizes. */
bool tp__detection_check_images(tp_tape *T, const char *model, const tp_params *P,
                                tp_tensor images);
/* Returns false and fails T if an object in one of B images cannot be learnt. */
bool tp__detection_check_objects(tp_tape *T, const char *model, const tp_objects *o, int64_t B,
                                 int64_t classes);

/* Halves the sides of anchors, for images of about 128 pixels. */
void tp__anchors_halve(tp_anchor_cfg *a);

/* A tp_init rule: weights by *(const tp_init *)env, biases 0. */
tp_init tp__init_weights(const char *name, tp_shape s, tp_init dflt, void *env);

/* The sides of anchors as a text, level by level. parse: false, with a sentence in why, unless each
 * level has equally many numbers. */
void tp__anchor_sizes_print(const tp_anchor_cfg *c, char *text, size_t size);
bool tp__anchor_sizes_parse(tp_anchor_cfg *c, const char *text, char *why, size_t size);

/* The anchors of all levels of a pyramid, one after another. */
typedef struct tp_anchor_list {
    int levels;
    int64_t n;
    int64_t first[TP_ANCHOR_LEVELS + 1]; /* level k has first[k] ... first[k + 1] - 1 */
    tp_corners *box;                     /* [n] */
} tp_anchor_list;
/* Fills *a for maps with sizes (height, width) [levels]; free box. False: out of memory. */
bool tp__anchor_list(tp_anchor_list *a, const tp_anchor_cfg *c, int levels,
                     const int64_t (*size)[2]);

/* Members of tp_detector_NAME. */
tp_detection_losses tp__retinanet_losses(tp_tape *T, void *m, const tp_detection_in *in);
bool tp__mask_rcnn_detect(tp_tape *T, const void *m, const tp_detection_in *in, tp_detected *out);
void tp__mask_rcnn_forward(tp_tape *T, const void *m, tp_tensor images);

/* Allocates n zeroed elements, at least one, to be freed. NULL: T has failed. */
void *tp__detection_alloc(tp_tape *T, int64_t n, size_t size);
/* Reads x to host memory as floats, to be freed. NULL: T has failed. Synchronises. */
float *tp__detection_read(tp_tape *T, tp_tensor x);
/* Returns x in a precision for losses: bf16 becomes f32. */
tp_tensor tp__detection_precise(tp_tape *T, tp_tensor x);
/* Returns a constant with the dtype of `like`. */
tp_tensor tp__detection_constant(tp_tape *T, tp_tensor like, tp_shape s, const double *x);
/* Returns the sum of the (smooth) L1 losses of offsets; beta below 1e-5: L1. */
tp_tensor tp__detection_box_loss(tp_tape *T, tp_tensor offset, tp_tensor target, double beta);
/* Return weight i of a coder and its largest logarithm when decoding, with defaults applied. */
double tp__box_weight(const tp_box_coder *c, int i);
double tp__box_most(const tp_box_coder *c);
/* Does a matcher have legal, ascending thresholds, and legal labels? */
bool tp__matcher_ok(const tp_matcher *m);
/* The whole batch's count, where `count` is this process's, and the number of processes. */
double tp__detection_total(const tp_detection_in *in, double count);
double tp__detection_ranks(const tp_detection_in *in);
/* The weight of a mean over `count` terms of this process, with which the mean over the
 * processes is the mean over all terms. */
double tp__detection_weight(const tp_detection_in *in, double count);
/* Returns rows index [n] of x [...,C], counted over all leading axes: [n,C]. */
tp_tensor tp__detection_rows(tp_tape *T, tp_tensor x, int64_t columns, const int64_t *index,
                             int64_t n);

/* Makes room for n regions of the images. False: T has failed. */
bool tp__regions_new(tp_tape *T, tp_regions *r, int64_t images, int64_t n);
/* Samples regions to train the heads with. False: T has failed. */
bool tp__regions_sample(tp_tape *T, const tp_mask_rcnn_cfg *c, const tp_detection_in *in,
                        const tp_regions *proposals, tp_regions *sampled);

/* Selects the sampled regions whose objects have outlines, and makes their mask targets [n,s,s],
 * s = 2 mask.side. Free both. False: T has failed. */
bool tp__mask_targets(tp_tape *T, const tp_mask_rcnn_cfg *c, const tp_detection_in *in,
                      const tp_regions *sampled, tp_regions *regions, uint8_t **target);

/* The objects of one image, in reused memory. */
typedef struct tp_object_room {
    tp_objects objects;
    int64_t unseen; /* objects outside the view, or with runs of another size than the image */
    void *memory;
    size_t bytes;
    tp_rle *mask; /* [masks] */
    int64_t masks;
} tp_object_room;
void tp__object_room_free(tp_object_room *room);

/* Returns why an object cannot be learned from, or TP_COCO_REASONS. In an image of unknown size,
 * only a view shows that a box is outside. */
tp_coco_reason tp__object_unfit(const tp_object_loader_opts *o, const tp_coco *X,
                                const tp_coco_object *a);
/* Does an object that is learned from have unusable polygons? */
bool tp__object_is_cut(const tp_object_loader_opts *o, const tp_coco *X, const tp_coco_object *a);
/* Fills the objects of an image in a view. False: out of memory. */
bool tp__objects_fill(const tp_object_loader_opts *o, const tp_coco *X, int64_t image,
                      const tp_object_view *v, tp_object_room *room);

#endif
