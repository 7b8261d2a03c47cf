/* gallery.h - what the programs of the gallery share: their flags, the check of their result, and
 * pictures of grey images. */
#ifndef GALLERY_H
#define GALLERY_H

#include <tapegrad/tapegrad.h>

/* A run. The device's first error, of whatever object, ends the program with its text, so that a
 * program checks nothing but tp_ok in long loops. */
typedef struct gallery {
    tp_device *D;
    uint64_t seed;
    tp_tape_opts training; /* of a tape to train on: seed, mode, f32 or bf16 with weights in f32 */
    int64_t steps;
    const char *picture;
    char *why; /* the first error; "": none */
    size_t size;
} gallery;

typedef struct gallery_program {
    const char *name, *summary;      /* without a full stop */
    const char *about;               /* paragraphs of the manual */
    const char *picture;             /* its usual file; NULL: there is none */
    int64_t steps;                   /* the usual number */
    const char *result, *unit;       /* "accuracy", " %" */
    double goal;                     /* what the result must reach after the usual steps */
    bool higher;                     /* at least the goal; false: at most */
    double (*run)(const gallery *g); /* trains, and returns the result */
} gallery_program;

/* The main function of a program. Returns its exit status: 0, 1 after an error or if the usual
 * number of steps has not reached the goal, 2 for bad flags. */
int gallery_main(const gallery_program *p, int argc, char **argv);

/* True ten times in a run, in the last step too: time to print a line of progress, which begins
 * with the number of completed steps. */
bool gallery_reports(const gallery *g, int64_t step);

/* Ends the run with a message, unless it has failed already. */
void gallery_fail(const gallery *g, const char *fmt, ...) TP_PRINTF(2, 3);

/* Writes images [down,across,height,width] of values in [0,1], enlarged and in a grid, to the
 * picture of the run, and prints where it is. */
void gallery_images(const gallery *g, int down, int across, int64_t height, int64_t width,
                    const float *v);

#endif
