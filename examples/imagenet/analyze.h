/* analyze.h - what the figures of `imagenet analyze` share: a model, pictures, and where to write.
 */
#ifndef ANALYZE_H
#define ANALYZE_H

#include <tapegrad/observe.h>

#include "curves.h"
#include "image_file.h"

typedef struct analysis {
    image_file f;
    const char *out; /* folder */
    float *x;        /* pictures [n,size,size,3] */
    int64_t n, batch;
    int64_t picture; /* of those, that attention is shown on                             */
    int64_t block;   /* that is shown, from 0; -1: all                                   */
    int64_t query;   /* token that attends: of the window (LSLA) or of the map; -1: some */
    int64_t window;  /* LSLA */
    int64_t at;      /* block that the op seen now belongs to */
    char why[4600];
} analysis;

/* Notes why the analysis cannot go on; always false. */
bool analysis_fail(analysis *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Runs the model on all pictures, or on the chosen one, and shows its ops. */
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
typedef struct table {
    FILE *f;
    char *text;
    size_t size;
} table;
bool table_begin(table *t, analysis *a, const char *columns);
bool table_end(table *t, analysis *a, const char *name); /* writes the file, whole */

/* Draws a picture of curves; where gnuplot cannot, says so and goes on. */
void analysis_curves(const analysis *a, const curves *p, const char *name);

/* ---- the figures; false with the reason in a->why ---- */
enum { DEPTH_MAX = 256 };

/* analyze_similarity.c */
typedef struct depth {
    int64_t blocks;
    double number[DEPTH_MAX], cosine[DEPTH_MAX]; /* from 1; mean over the pictures */
    int64_t tokens[DEPTH_MAX];
} depth;
bool similarity_measure(analysis *a, depth *d);
bool similarity_write(analysis *a, const depth *d);

/* analyze_resolution.c: presets and sizes are lists with commas */
typedef struct resolution_opts {
    const char *presets, *sizes;
    double seconds;
    const common_settings *c;
} resolution_opts;
bool resolution_draw(analysis *a, const resolution_opts *o);

#endif
