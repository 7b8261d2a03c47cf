/* range.h - the losses of a test of learning rates (--lr-range), and their picture. */
#ifndef TP_RANGE_H
#define TP_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tp_range {
    double from, to;
    int64_t updates;            /* wanted; 0: no test */
    int64_t n;                  /* made */
    double *lr, *loss, *smooth; /* [updates], in one block; NaN: no loss */
    double sum;                 /* behind smooth */
    int64_t lowest, steepest;   /* where smooth is lowest and falls fastest; steepest 0: nowhere */
    bool diverged;
} tp_range;

/* The learning rate of an update. */
double tp__range_rate(const tp_range *g, int64_t update);

/* Draws at least two losses over the logarithm of their rates as an SVG. False with the reason in
 * why; an existing file is then unchanged. */
bool tp__range_draw(const tp_range *g, const char *program, const char *path, char *why,
                    size_t size);

#endif
