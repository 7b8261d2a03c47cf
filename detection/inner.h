/* inner.h - functions that the files of detectors share. */
#ifndef DETECTION_INNER_H
#define DETECTION_INNER_H

#include <tapegrad/detection/loader.h>
#include <tapegrad/detection/mask_rcnn.h>
#include <tapegrad/detection/retinanet.h>

/* Writes a sentence to why unless that is NULL, and returns false. */
bool tp__refuse(char *why, size_t size, const char *fmt, ...) TP_PRINTF(3, 4);

/* False, with T failed, if the parameters of `model` have failed, or images are not a batch of possible sizes. */
bool tp__detection_check_images(tp_tape *T, const char *model, const tp_params *P,
                                tp_tensor images);
/* False, with T failed, if an object in one of B images cannot be learnt. */
bool tp__detection_check_objects(tp_tape *T, const char *model, const tp_objects *o, int64_t B,
                                 int64_t classes);

/* Halves the sides of anchors, for images of about 128 pixels. */
void tp__anchors_halve(tp_anchor_cfg *a);

/* A tp_init rule: weights as *(const tp_init *)env says, biases 0. */
tp_init tp__init_weights(const char *name, tp_shape s, tp_init dflt, void *env);

/* The sides of anchors as a text, level by level. parse: false, with a sentence in why, if they are not equally many
 * numbers for each level. */
void tp__anchor_sizes_print(const tp_anchor_cfg *c, char *text, size_t size);
bool tp__anchor_sizes_parse(tp_anchor_cfg *c, const char *text, char *why, size_t size);

/* The anchors of all levels of a pyramid, one after another. */
typedef struct tp_anchor_list {
    int levels;
    int64_t n;
    int64_t first[TP_ANCHOR_LEVELS + 1]; /* level k has first[k] ... first[k + 1] - 1 */
    tp_corners *box;                     /* [n] */
} tp_anchor_list;
/* For maps of the heights and widths size [levels]. False: out of memory. The caller frees box. */
bool tp__anchor_list(tp_anchor_list *a, const tp_anchor_cfg *c, int levels,
                     const int64_t (*size)[2]);

/* Members of the constants. */
tp_detection_losses tp__retinanet_losses(tp_tape *T, void *m, const tp_detection_in *in);
bool tp__mask_rcnn_detect(tp_tape *T, const void *m, const tp_detection_in *in, tp_detected *out);
void tp__mask_rcnn_forward(tp_tape *T, const void *m, tp_tensor images);

/* n elements, zeroed, to be freed; at least one. NULL: T has failed. */
void *tp__detection_alloc(tp_tape *T, int64_t n, size_t size);
/* The values of x as floats in host memory, to be freed. NULL: T has failed. Synchronises. */
float *tp__detection_read(tp_tape *T, tp_tensor x);
/* x in a precision for losses: bf16 becomes f32. */
tp_tensor tp__detection_precise(tp_tape *T, tp_tensor x);
/* Numbers as a constant of the dtype of `like`. */
tp_tensor tp__detection_constant(tp_tape *T, tp_tensor like, tp_shape s, const double *x);
/* The sum of the (smooth) L1 losses of offsets; beta below 1e-5: L1. */
tp_tensor tp__detection_box_loss(tp_tape *T, tp_tensor offset, tp_tensor target, double beta);
/* Weight i of a coder, and the largest logarithm of its decoding: the defaults are applied. */
double tp__box_weight(const tp_box_coder *c, int i);
double tp__box_most(const tp_box_coder *c);
/* True if a matcher has possible numbers of thresholds, which ascend, and labels. */
bool tp__matcher_ok(const tp_matcher *m);
/* Rows index [n] of x [...,C], counted over all leading axes: [n,C]. */
tp_tensor tp__detection_rows(tp_tape *T, tp_tensor x, int64_t columns, const int64_t *index,
                             int64_t n);

/* Room for n regions of some images. False: T has failed. */
bool tp__regions_new(tp_tape *T, tp_regions *r, int64_t images, int64_t n);
/* Samples the regions that the heads are trained with. False: T has failed. */
bool tp__regions_sample(tp_tape *T, const tp_mask_rcnn_cfg *c, const tp_detection_in *in,
                        const tp_regions *proposals, tp_regions *sampled);

/* Of sampled regions, those whose objects have outlines (regions, with their categories), and what their masks are to
 * be, target [n,s,s] with s = 2 mask.side. Both are to be freed. False: T has failed. */
bool tp__mask_targets(tp_tape *T, const tp_mask_rcnn_cfg *c, const tp_detection_in *in,
                      const tp_regions *sampled, tp_regions *regions, uint8_t **target);

/* The objects of one image, in memory that is reused. */
typedef struct tp_object_room {
    tp_objects objects;
    int64_t
        unseen; /* objects that are not in the view, or whose runs have another size than the image */
    void *memory;
    size_t bytes;
    tp_rle *mask; /* [masks] */
    int64_t masks;
} tp_object_room;
void tp__object_room_free(tp_object_room *room);

/* Why an object cannot be learned from; TP_COCO_REASONS: it can. A box outside an image of unknown size shows only in a
 * view. */
tp_coco_reason tp__object_unfit(const tp_object_loader_opts *o, const tp_coco *X,
                                const tp_coco_object *a);
/* Are some of the polygons of an object that is learned from unusable? */
bool tp__object_is_cut(const tp_object_loader_opts *o, const tp_coco *X, const tp_coco_object *a);
/* Fills the objects of an image in a view. False: out of memory. */
bool tp__objects_fill(const tp_object_loader_opts *o, const tp_coco *X, int64_t image,
                      const tp_object_view *v, tp_object_room *room);

#endif
