/* norms.h - mean l2 norms of the keys and values that long-short attention reads, by layer: of the
 * window and of the dynamic projection (Zhu et al. 2021, Figure 2).
 *
 * without: before DualLN, with projections of unnormalised keys and values. with: as the attention
 * reads them. A model without DualLN has only the former. */
#ifndef NORMS_H
#define NORMS_H

#include <tapegrad/observe.h>

#include "pictures/picture.h"

enum { NORM_LAYERS = 256 };

/* Means, by [keys, values] and [window, projection]. */
typedef struct norm_ratios {
    int64_t layers;                           /* the last one with long-short attention, + 1 */
    bool has[NORM_LAYERS], dual[NORM_LAYERS]; /* has long-short attention; has DualLN */
    double without[NORM_LAYERS][2][2], with[NORM_LAYERS][2][2];
} norm_ratios;

/* The observer of forward passes; begin with the members up to `layer`. */
typedef struct norms {
    norm_ratios *r;   /* zeroed; sums until norms_end */
    bool class_first; /* the class token precedes the projections, as in encoders of documents */
    int64_t layers;   /* of a pass, after which layer is 0 again; 0: the caller sets it back */
    int64_t layer;    /* of the next attention */
    /* the attention that runs */
    const char *path;
    tp_tensor raw[2];
    int raws, calls; /* inputs of the first norm; calls of a language model's second one */
    bool language;
    int64_t rank;
    double projected[2], vectors[2];
    double rows[NORM_LAYERS][2][2][2]; /* counts of r->without, r->with */
} norms;

/* A tp_observer whose env is a norms. Keys that a mask hides do not count. */
void norms_see(void *env, tp_tape *T, const tp_seen *seen);

/* Replaces the sums by means. False: no layer has long-short attention. */
bool norms_end(norms *s);

/* ---- results ---- */

/* The rows of a table separated by tabs, whose columns are the layer's number and these. */
#define NORMS_COLUMNS                                                                              \
    "dual_ln\tkeys\tprojected_keys\tkey_ratio\tvalues\tprojected_values\tvalue_ratio"
void norms_table(const norm_ratios *r, FILE *f);

/* The ratios as curves, which point into y and number; returns how many, 2 or 4. */
enum { NORM_CURVES = 4 };
typedef struct norm_curves {
    curve at[NORM_CURVES];
    double number[NORM_LAYERS], y[NORM_CURVES][NORM_LAYERS];
} norm_curves;
int norms_curves(const norm_ratios *r, norm_curves *c);

/* Title, explanation and vertical axis of the picture. */
#define NORMS_TITLE "Norms of keys and values"
#define NORMS_NOTE                                                                                 \
    "Mean norm of the window's keys and values over that of the projected ones. At 1 one softmax " \
    "can weigh both fairly, which DualLN is for."
#define NORMS_UP "norm in window / norm of projections"

#endif
