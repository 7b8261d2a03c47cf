/* calibration.h - how well a classifier's probabilities match its accuracy: calibration errors,
 * proper scores, and the temperature that improves them. */
#ifndef CALIBRATION_H
#define CALIBRATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CALIBRATION_BINS = 15, TEMPERATURES = 81 };

/* Examples whose confidence, the likeliest class's probability, is in one bin. */
typedef struct calibration_bin {
    int64_t examples, right;
    double confidence; /* sum */
} calibration_bin;

/* The score at one temperature, the divisor of logits. */
typedef struct calibration_at {
    double nll;
    calibration_bin bin[CALIBRATION_BINS];
} calibration_at;

/* Initialise to { 0 }. Memory: 16 bytes per example. */
typedef struct calibration {
    int64_t n, room;
    struct calibration_guess {
        double confidence;
        bool right;
    } * guess;                          /* [n] */
    double nll, brier;                  /* sums over the examples */
    int64_t fitted, others;             /* examples that fit the temperature, and the rest */
    double fit[TEMPERATURES];           /* sums over the former */
    calibration_at other[TEMPERATURES]; /* over the latter */
    bool no_memory;
} calibration;

/* Adds example number `example`. Skips it if logits [classes] have NaN, or infinity at the largest
 * or at the label. */
void calibration_note(calibration *c, int64_t example, int32_t label, const float *logits,
                      int64_t classes);
void calibration_free(calibration *c);

/* Is the example in the half that fits the temperature? Drawn by its number. */
bool calibration_fits(int64_t example);

/* ECE of n binned examples: mean |accuracy - mean confidence|, weighted by examples (Guo et al.
 * 2017). */
double calibration_error(const calibration_bin bin[CALIBRATION_BINS], int64_t n);

typedef struct calibration_result {
    int64_t examples;
    double ece;                           /* bins (0, 1/15], ..., (14/15, 1] */
    double adaptive;                      /* bins of equally many examples, by confidence */
    double nll, brier, confidence, right; /* means; brier: sum of squares over the classes */
    calibration_bin bin[CALIBRATION_BINS];
    /* Temperature scaling: the temperature, from 1/4 to 8 in steps of 2^(1/16), with the least NLL
     * of one half of the examples; the other half's scores at temperature 1 and at this one. */
    bool scaled; /* false: too few examples */
    double temperature, nll_before, nll_after, ece_before, ece_after;
    calibration_bin bin_after[CALIBRATION_BINS];
} calibration_result;

/* Sorts the examples of c. */
calibration_result calibration_of(calibration *c);

/* Draws the reliability diagram and the confidences' distribution. examples: their plural name,
 * "images". False with the reason in why. */
bool calibration_draw(const calibration_result *r, const char *what, const char *examples,
                      const char *path, char *why, size_t size);

#endif
