/* augment.h - from a file's bytes to training examples: the papers' pipelines for images and the
 * mixing of batches. Part of the data library.
 *
 * All random numbers of an example are functions of (seed, epoch, index), so its bits do not depend
 * on the thread that prepares it or on the order. */
#ifndef TAPEGRAD_AUGMENT_H
#define TAPEGRAD_AUGMENT_H

#include <tapegrad/corrupt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How an image becomes size x size pixels. */
typedef enum tp_crop {
    TP_CROP_NONE,    /* resizes the image, ignoring its aspect ratio */
    TP_CROP_CENTRE,  /* resizes the shorter edge to size / crop_ratio, crops the centre */
    TP_CROP_RANDOM,  /* the same with a random crop */
    TP_CROP_RESIZED, /* resizes a box of random area and aspect ratio */
    TP_CROP_PADDED   /* pads by 4 black pixels, crops size x size at random (small images) */
} tp_crop;

/* Mixing: each batch is mixed with the given probability, by cutmix or by mixup. */
typedef struct tp_mix {
    double probability;
    double mixup, cutmix; /* lambda is drawn from Beta(a, a) with this a; 0: off */
    double cut;           /* probability of cutmix if both are on */
    double smoothing;     /* label smoothing, with or without mixing */
} tp_mix;

typedef struct tp_augment {
    int64_t size;
    tp_crop crop;
    double crop_ratio;
    double area[2], aspect[2]; /* TP_CROP_RESIZED: fraction of the image, width / height */
    tp_filter filter;
    double flip;              /* probability */
    int ops;                  /* RandAugment: operations drawn from the 15; 0: none */
    double op_probability;    /* of applying each of them */
    double magnitude, spread; /* mean and deviation of the magnitude, clamped to 0 ... 10 */
    /* colour jitter by 1 +- this, in random order; not used with RandAugment */
    double brightness, contrast, saturation;
    double erase; /* probability of replacing a box by normal noise */
    double erase_area[2], erase_aspect[2];
    float mean[3], std[3]; /* pixels become (value / 255 - mean) / std, std above 0 */
    uint8_t fill[3];       /* of geometric operations */
    tp_image_opts decode;  /* the pipeline sets its shrink and box */
    bool shrink; /* decodes large JPEG boxes at 1/2 to 1/8: faster, slightly different pixels */
    tp_mix mix;  /* for tp_mix_draw */
    /* Corrupts the size x size pixels after all other operations on them. The random numbers are
     * from a separate stream that does not depend on the severity. */
    tp_corrupt corrupt;
    int severity; /* 1 to 5 */
} tp_augment;

/* Sets *a to the named recipe for size x size pixels:
 *
 *     vil vil-ls cvt lsla   training: random resized crop, flip, RandAugment 9, erasing, mixing
 *     vit                   random resized crop, flip
 *     resnet                the same, resized bilinearly
 *     small                 random resized crop of at least 0.35 of the area, flip; smoothed labels
 *     finetune              random crop after resizing to size / 0.922, flip; smoothed labels
 *     eval                  centre crop after resizing to size / 0.875
 *     none                  resizing only
 *
 * Up to size 32, training crops after padding, and eval resizes if the size differs. False if there
 * is none. Fields may be changed afterwards. */
TP_API bool tp_augment_recipe(tp_augment *a, const char *name, int64_t size);

/* Identifies an example in an epoch (below 2^31). */
typedef struct tp_example {
    uint64_t seed, epoch, index;
} tp_example;

/* Buffers of a worker, reused between examples; initialise to { 0 }. image holds the pixels of the
 * last example before they were converted to floats. */
typedef struct tp_augment_work {
    tp_image image, spare;
    tp_image decoded;
    void *file; /* memory for the bytes of a file */
    size_t file_room;
    char why[512];
    /* TP_OK, or memory ran out; after tp_image_set_prepare also TP_E_IO (tp_image) */
    tp_code shortage;
} tp_augment_work;
TP_API void tp_augment_work_free(tp_augment_work *w);

/* Converts a file's bytes, or decoded pixels, to float [size,size,3]. False with the reason in
 * w->why; out is then unchanged. */
TP_API bool tp_augment_bytes(const tp_augment *a, tp_augment_work *w, const void *bytes, size_t n,
                             tp_example e, float *out);
TP_API bool tp_augment_image(const tp_augment *a, tp_augment_work *w, const tp_image *in,
                             tp_example e, float *out);

/* ---- mixing ---- */

/* How to mix a batch: image i with image B-1-i, with weight lambda (1: no mixing). cut: the box is
 * copied from the partner instead, and lambda is the fraction that remains. */
typedef struct tp_mixing {
    double lambda;
    bool cut;
    tp_box box;
} tp_mixing;

/* Draws the mixing of the batch with that seed, epoch and index; its images have H x W pixels. */
TP_API tp_mixing tp_mix_draw(const tp_mix *m, tp_example batch, int64_t H, int64_t W);

/* The box around (x, y) that covers a fraction 1 - lambda, clipped to the image, with lambda
 * corrected. */
TP_API tp_mixing tp_mix_cut(double lambda, int64_t x, int64_t y, int64_t H, int64_t W);

/* Mixes x [B,H,W,C] in place. With an odd B the middle image is unchanged. */
TP_API void tp_mix_apply(const tp_mixing *d, float *x, int64_t B, int64_t H, int64_t W, int64_t C);

/* Writes targets [B,classes]: one-hot labels, smoothed and mixed. */
TP_API void tp_mix_targets(const tp_mixing *d, double smoothing, const int32_t *label, int64_t B,
                           int64_t classes, float *targets);

#ifdef __cplusplus
}
#endif
#endif
