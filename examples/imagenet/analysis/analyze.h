/* analyze.h - what the figures of `imagenet analyze` share: a model, images, and where to write.
 */
#ifndef ANALYZE_H
#define ANALYZE_H

#include <tapegrad/observe.h>

#include "curves.h"
#include "heat_map.h"
#include "image_file.h"
#include "map_numbers.h"

typedef struct analysis {
    image_file f;
    const char *out; /* folder */
    float *x;        /* images [n,size,size,3] */
    int64_t n, batch;
    bool named;      /* the figure was asked for by its name: that the model has none is an error */
    int64_t image;   /* of those, that attention is shown on                                */
    int64_t block;   /* that is shown, from 0; -1: all                                      */
    double row, col; /* of the token that attends, from 0 to 1 in the image               */
    int64_t window;  /* LSLA */
    int64_t query;   /* LSLA: token of the window; -1: the eighth                           */
    int64_t at;      /* block that the op seen now belongs to */
    char why[4600];
} analysis;

/* Notes why the analysis cannot go on; always false. */
bool analysis_fail(analysis *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The model has none of what a figure shows: an error if the figure was named, else passed over. */
bool analysis_none(analysis *a, const char *figure, const char *what);

/* Runs the model on all images, or on the chosen one, and shows its ops. */
bool analysis_run(analysis *a, tp_observer see, void *env);
bool analysis_run_one(analysis *a, tp_observer see, void *env);

/* The file NAME of the folder. */
void analysis_path(const analysis *a, const char *name, char path[4400]);

/* Is that op the last of a block, whose result is the block's? In evaluation that is the one that
 * adds the residual after the MLP; of the convolution net the activation. */
bool analysis_ends_block(const tp_seen *s);

/* Tokens in front of the map's in block i: class tokens and global ones. */
int64_t analysis_front(const classifier_cfg *c, int64_t block);

/* ---- a file of numbers: a line for each, separated by tabs, names above ---- */
typedef struct tsv {
    FILE *f;
    char *text;
    size_t size;
} tsv;
bool tsv_begin(tsv *t, analysis *a, const char *columns);
bool tsv_end(tsv *t, analysis *a, const char *name); /* writes the file, whole */

/* Draws an image of curves; where gnuplot cannot, says so and goes on. */
void analysis_curves(const analysis *a, const curves *p, const char *name);

/* The grid as NAME; false with the reason in a->why. */
bool analysis_heat(analysis *a, const heat_map *at, int down, int across, const char *name);

/* The mean over heads of element i of v [heads,n]. */
double analysis_mean(const double *v, int64_t heads, int64_t n, int64_t i);

/* ---- the figures; false with the reason in a->why ---- */
enum { DEPTH_MAX = 256 };

/* similarity.c */
typedef struct depth {
    int64_t blocks;
    double number[DEPTH_MAX], cosine[DEPTH_MAX]; /* from 1; mean over the images */
    int64_t tokens[DEPTH_MAX];
} depth;
bool similarity_measure(analysis *a, depth *d);
bool similarity_write(analysis *a, const depth *d);

/* norms.c: mean norms of [keys, values] and of [the window's, the projected ones] */
typedef struct norm_ratios {
    int64_t blocks;
    bool has[DEPTH_MAX], dual[DEPTH_MAX]; /* long-short attention; with DualLN */
    double without[DEPTH_MAX][2][2], with[DEPTH_MAX][2][2];
} norm_ratios;
bool norms_measure(analysis *a, norm_ratios *r);
bool norms_draw(analysis *a);

/* lsla.c: of one query of one window, v[kind] [heads,n], n tokens of the window */
enum {
    LSLA_SCALE,
    LSLA_INNER,
    LSLA_SCORE,
    LSLA_LOGIT,
    LSLA_BEFORE,
    LSLA_OUTER,
    LSLA_AFTER,
    LSLA_KINDS
};
typedef struct lsla_query {
    int64_t heads, side, n, query;
    int64_t pixel[2], pixels; /* first row and column of the window, its side */
    double fixed;             /* scale without a dynamic one: 1/sqrt(D) */
    double *v[LSLA_KINDS];
} lsla_query;
bool lsla_measure(analysis *a, lsla_query *q); /* of block a->block, -1: the first; free after */
void lsla_free(lsla_query *q);
bool lsla_draw(analysis *a);

/* bias.c, span.c */
bool bias_draw(analysis *a);
bool span_draw(analysis *a);

/* resolution.c: presets and sizes are lists with commas */
typedef struct resolution_opts {
    const char *presets, *sizes;
    double seconds;
    bool cpu_time;
    const image_common *c;
} resolution_opts;
bool resolution_draw(analysis *a, const resolution_opts *o);

#endif
