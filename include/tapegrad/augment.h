/* augment.h - from a file's bytes to what a model is trained on: the papers' pipelines for images
 * and the mixing of batches. Part of the data library.
 *
 * All random numbers of an example are functions of (seed, epoch, index): whichever thread prepares
 * it, in whichever order, the bits are the same. */
#ifndef TAPEGRAD_AUGMENT_H
#define TAPEGRAD_AUGMENT_H

#include <tapegrad/image.h>
#include <tapegrad/random.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How an image becomes size x size pixels. */
typedef enum tp_crop {
    TP_CROP_NONE,    /* resized, whatever its shape                                            */
    TP_CROP_CENTRE,  /* shorter edge resized to size / crop_ratio, centre of it                */
    TP_CROP_RANDOM,  /* the same, a random place                                               */
    TP_CROP_RESIZED, /* a box of random area and shape, resized                                */
    TP_CROP_PADDED   /* 4 black pixels around, a random place (of size x size: small images) */
} tp_crop;

/* Mixing of a batch: every batch is mixed (with that probability), by cutmix or by mixup. */
typedef struct tp_mix {
    double probability;
    double mixup, cutmix; /* lambda is Beta(a, a) distributed; 0: never that one */
    double cut;           /* probability of cutmix where both are on             */
    double smoothing;     /* of the labels, mixed or not                         */
} tp_mix;

typedef struct tp_augment {
    int64_t size;
    tp_crop crop;
    double crop_ratio;
    double area[2], aspect[2]; /* TP_CROP_RESIZED: fraction of the image, width / height       */
    tp_filter filter;
    double flip;              /* probability                                                 */
    int ops;                  /* RandAugment: operations drawn from the 15; 0: none          */
    double op_probability;    /* of each of them; else it is left out                        */
    double magnitude, spread; /* normal, cut to 0 ... 10                                     */
    double brightness, contrast, saturation; /* colour jitter 1 +- this, in random order; not used
                                                beside RandAugment                               */
    double erase; /* probability that a box becomes normal noise                 */
    double erase_area[2], erase_aspect[2];
    float mean[3], std[3]; /* pixels become (value / 255 - mean) / std, std above 0             */
    uint8_t fill[3];       /* of geometric operations                                             */
    tp_image_opts decode;  /* shrink and box are set by the pipeline                              */
    bool shrink; /* decode large JPEG boxes at 1/2 to 1/8: faster, slightly other pixels */
    tp_mix mix;  /* for tp_mix_draw                                                     */
} tp_augment;

/* The recipe of that name for size x size pixels:
 *
 *     vil vil-ls cvt lsla   training: random resized crop, flip, RandAugment 9, erasing, mixing
 *     small                 random resized crop of at least 0.35 of it, flip; smoothed labels
 *     finetune              random crop after resizing to size / 0.922, flip; smoothed labels
 *     eval                  centre crop after resizing to size / 0.875
 *     none                  resizing alone
 *
 * Sizes up to 32: training crops after padding, eval resizes where the size differs. False if there
 * is none. Fields may be changed afterwards. */
TP_API bool tp_augment_recipe(tp_augment *a, const char *name, int64_t size);

/* Which example, and in which epoch (below 2^31). */
typedef struct tp_example {
    uint64_t seed, epoch, index;
} tp_example;

/* What a worker keeps between examples: begin with { 0 }. image: the pixels of the last example
 * as they were before they became numbers. */
typedef struct tp_augment_work {
    tp_image image, spare;
    tp_image decoded;
    void *file; /* memory for the bytes of a file */
    size_t file_room;
    char why[512];
    bool shortage; /* in tp_image_set_prepare: memory or open files ran out, or the disk failed */
} tp_augment_work;
TP_API void tp_augment_work_free(tp_augment_work *w);

/* A file's bytes, or pixels, as float [size,size,3]. False with the reason in w->why, and out is
 * left alone. */
TP_API bool tp_augment_bytes(const tp_augment *a, tp_augment_work *w, const void *bytes, size_t n,
                             tp_example e, float *out);
TP_API bool tp_augment_image(const tp_augment *a, tp_augment_work *w, const tp_image *in,
                             tp_example e, float *out);

/* ---- mixing ---- */

/* How one batch is mixed: image i with image B-1-i, by lambda (1: not at all); cut: the box is
 * copied from the partner instead, and lambda is what remains. */
typedef struct tp_mixing {
    double lambda;
    bool cut;
    tp_box box;
} tp_mixing;

/* Draws for the batch with that index (of an epoch) of H x W pixels. */
TP_API tp_mixing tp_mix_draw(const tp_mix *m, tp_example batch, int64_t H, int64_t W);

/* The box around a centre that lambda leaves out, cut to the image, and lambda corrected. */
TP_API tp_mixing tp_mix_cut(double lambda, int64_t x, int64_t y, int64_t H, int64_t W);

/* x [B,H,W,C] in place. B is even, or the middle image stays. */
TP_API void tp_mix_apply(const tp_mixing *d, float *x, int64_t B, int64_t H, int64_t W, int64_t C);

/* targets [B,classes]: one-hot labels, smoothed and mixed. */
TP_API void tp_mix_targets(const tp_mixing *d, double smoothing, const int32_t *label, int64_t B,
                           int64_t classes, float *targets);

#ifdef __cplusplus
}
#endif
#endif
