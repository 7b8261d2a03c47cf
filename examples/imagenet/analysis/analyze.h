/* analyze.h - shared by the figures of `imagenet analyze`: model, images, and output folder. */
#ifndef ANALYZE_H
#define ANALYZE_H

#include <tapegrad/observe.h>

#include "image_file.h"
#include "inside/norms.h"
#include "map_numbers.h"
#include "pictures/picture.h"

typedef struct analysis {
    image_file f;
    const char *out; /* folder */
    tp_image_set *X;
    tp_augment as_tested;
    uint64_t seed; /* of the choice of images */
    float *one;    /* the chosen image [size,size,3] */
    int64_t n, batch;
    bool named;         /* --what names the figure; an error if the model has none */
    int64_t image;      /* the image whose attention is shown */
    int64_t block;      /* the block shown, from 0; -1: all */
    double row, col;    /* the query token's position in the image, from 0 to 1 */
    int64_t window;     /* LSLA: number of the window */
    int64_t query;      /* LSLA: token of the window; -1: the eighth */
    int64_t at;         /* block of the observed op */
    const char *ending; /* of pictures: "png" or "svg" */
    char model[700];    /* for titles: model and source of images */
    char set[400];
    gnuplot plot;
    int undrawn; /* pictures that failed */
    char why[4600];
} analysis;

/* Fails the analysis; always returns false. */
bool analysis_fail(analysis *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Call if a figure has nothing to show. Fails if the figure was named; otherwise skips it. */
bool analysis_none(analysis *a, const char *figure, const char *what);

/* The images in their order, which the seed alone decides; to be freed. */
tp_loader *analysis_loader(const analysis *a);
/* Reads the next ones: x [count,size,size,3]. */
bool analysis_read(analysis *a, tp_loader *L, float *x, int64_t count);
/* Reads the image that is shown. */
bool analysis_choose(analysis *a, int64_t image);

/* Run the model on all images, or on the chosen one, and call `see` for each op. */
bool analysis_run(analysis *a, tp_observer see, void *env);
bool analysis_run_one(analysis *a, tp_observer see, void *env);

/* The path of output file `name`. */
void analysis_path(const analysis *a, const char *name, char path[4400]);

/* Is the op a block's last, whose result is the block's? In evaluation, the residual addition after
 * the MLP, or the convolutional network's activation. */
bool analysis_ends_block(const tp_seen *s);

/* Number of class and global tokens before the map's tokens in block i. */
int64_t analysis_front(const classifier_cfg *c, int64_t block);

/* ---- tab-separated tables with a line of column names ---- */
typedef struct tsv {
    FILE *f;
    char *text;
    size_t size;
} tsv;
bool tsv_begin(tsv *t, analysis *a, const char *columns);
bool tsv_end(tsv *t, analysis *a, const char *name); /* atomic replacement */

/* ---- pictures ---- */

/* A grid of panels with their titles. Free it in any case. */
typedef struct panels {
    int down, across;
    panel *at;
    char (*text)[2][80]; /* per panel: title, vertical axis's label */
} panels;
bool panels_new(panels *s, analysis *a, int down, int across);
void panels_free(panels *s);
/* Puts p into the grid; up: "" for no label. */
void panels_put(panels *s, int row, int col, panel p, const char *title, const char *up);

/* Draws OUT/NAME.png or .svg under a title, with the model, the images (one or all) and a note on
 * how to read it. Reports a failure and continues. */
typedef enum shown { OF_ONE_IMAGE, OF_ALL_IMAGES, OF_NOISE } shown;
void analysis_draw(analysis *a, picture p, shown what, const char *name);

/* The chosen image as the model sees it. False if out of memory, which fails the analysis. */
bool analysis_photo(analysis *a, tp_image *photo);

/* The mean over heads of element i of v [heads,n]. */
double analysis_mean(const double *v, int64_t heads, int64_t n, int64_t i);

/* ---- the figures; false with the reason in a->why ---- */
enum { DEPTH_MAX = 256, ANALYSIS_RUNS = 8 /* models in one picture */ };

/* similarity.c */
typedef struct depth {
    int64_t blocks;
    double number[DEPTH_MAX], cosine[DEPTH_MAX]; /* from 0; mean over the images */
    int64_t tokens[DEPTH_MAX];
} depth;
bool similarity_measure(analysis *a, depth *d);
bool similarity_write(analysis *a, const depth *d);

/* norms.c */
bool norms_measure(analysis *a, norm_ratios *r);
bool norms_draw(analysis *a);

/* lsla.c: results for one query of one window: v[kind] [heads,n], n tokens per window */
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
    int64_t pixel[2], pixels; /* first row and column of the window in the image, and its side */
    double fixed;             /* scale if there is no dynamic one: 1/sqrt(D) */
    double *v[LSLA_KINDS];
} lsla_query;
bool lsla_measure(analysis *a, lsla_query *q); /* block a->block, -1: the first; always free */
void lsla_free(lsla_query *q);
bool lsla_draw(analysis *a);

bool lsla_picture(analysis *a, const lsla_query *q, const double *mean, const double *key);

/* lsla_runs.c: the weights of one query that multiply the values */
typedef struct lsla_weights {
    int64_t heads, side, n, query;
    double *mean, *key, *head; /* [n], [n], [heads,n]; free mean */
    char name[700];            /* the model's */
} lsla_weights;
bool lsla_weigh(analysis *a, lsla_weights *w); /* of the open model; always free */
bool lsla_draw_runs(analysis *a, const lsla_weights w[], int n);

/* bias.c */
bool bias_draw(analysis *a);

/* span.c: what the query attends to in each block */
typedef struct block_spans {
    int blocks;
    span of[DEPTH_MAX];   /* direct NULL: none */
    bool full[DEPTH_MAX]; /* whole map, without windows */
} block_spans;
bool span_draw(analysis *a);
bool span_picture(analysis *a, const block_spans *s);

/* resolution.c: presets and sizes are comma-separated lists */
typedef struct resolution_opts {
    const char *presets, *sizes;
    double seconds;
    bool cpu_time, dry; /* dry: only memory is counted */
    const image_common *c;
} resolution_opts;
bool resolution_draw(analysis *a, const resolution_opts *o);

#endif
