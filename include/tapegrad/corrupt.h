/* corrupt.h - corruptions of images at five severities, for measuring how a classifier degrades.
 * Part of the data library. They need no files and are the library's own: their strengths differ
 * from those of ImageNet-C, whose files test_sets.h scores. */
#ifndef TAPEGRAD_CORRUPT_H
#define TAPEGRAD_CORRUPT_H

#include <tapegrad/image.h>
#include <tapegrad/random.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The corruptions and their arguments. Pixel values are in units of 255, lengths are fractions of
 * the shorter side, so that a severity means the same for every image size. Pixels beyond the
 * border repeat the nearest one. */
#define TP_CORRUPT_KINDS(X)                                                                        \
    X(NONE, "none")                                                                                \
    X(GAUSSIAN_NOISE, "gaussian-noise") /* standard deviation of the added noise    */             \
    X(SHOT_NOISE, "shot-noise")         /* photons: the mean count of a white value */             \
    X(IMPULSE_NOISE, "impulse-noise")   /* share of values that become 0 or 255     */             \
    X(GAUSSIAN_BLUR, "gaussian-blur")   /* standard deviation, a length             */             \
    X(DEFOCUS_BLUR, "defocus-blur")     /* radius of a disk, a length               */             \
    X(MOTION_BLUR, "motion-blur")       /* length of a line in a random direction   */             \
    X(PIXELATE, "pixelate")             /* cells per pixel of a side, each set to its mean */      \
    X(JPEG, "jpeg")                     /* quality, 1 to 100                        */             \
    X(CONTRAST, "contrast")             /* factor; 0: uniform grey, the mean        */             \
    X(BRIGHTNESS, "brightness")         /* added to each value                      */             \
    X(DARKNESS, "darkness")             /* factor; 0: black                         */             \
    X(SATURATION, "saturation")         /* factor of the saturation, above 1        */             \
    X(GREY, "grey")                     /* factor of the saturation; 0: grey */

typedef enum tp_corrupt {
#define TP_CORRUPT_ENUM(name, text) TP_CORRUPT_##name,
    TP_CORRUPT_KINDS(TP_CORRUPT_ENUM)
#undef TP_CORRUPT_ENUM
        TP_NCORRUPT
} tp_corrupt;

enum { TP_CORRUPT_SEVERITIES = 5 };

/* The name of a corruption ("gaussian-noise"), and the corruption with a name; false: there is
 * none. */
TP_API const char *tp_corrupt_name(tp_corrupt c);
TP_API bool tp_corrupt_find(const char *name, tp_corrupt *c);

/* The argument for a severity from 1 to 5; NAN for other severities and for TP_CORRUPT_NONE. */
TP_API double tp_corrupt_argument(tp_corrupt c, int severity);

/* Corrupts p with an argument of the caller's choice; random numbers come from r, so equal streams
 * give equal bits. work is scratch, which may swap its memory with p's. False with the reason in
 * p->why, also for an argument out of its range. TP_CORRUPT_NONE changes nothing. */
TP_API bool tp_image_corrupt(tp_image *p, tp_corrupt c, double argument, tp_random *r,
                             tp_image *work);

#ifdef __cplusplus
}
#endif
#endif
