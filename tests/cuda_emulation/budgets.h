/* budgets.h - the calls of a training step by kernel, compared with a file of budgets, and the
 * attention kernels that a model falls back to. */
#ifndef BUDGETS_H
#define BUDGETS_H

#include <stdbool.h>
#include <stdio.h>

#include "counts.h"

enum { MOST_KERNELS = 256, KERNEL_NAME = 80 };

/* Calls by kernel, without template arguments, and by other kinds: "product", "f32_product",
 * "copy", ... */
typedef struct tally {
    struct {
        char name[KERNEL_NAME];
        uint64_t calls;
    } at[MOST_KERNELS];
    int n;
} tally;

/* The name of a line in a tally. */
const char *tally_name(const count_line *l, char text[KERNEL_NAME]);
tally tally_of(const count_line *lines, size_t n);

/* Each line of the file is MODEL, KERNEL and the calls in a step. The sum over a model's kernels
 * is its budget. Prints the kernels of a sum that is exceeded, and one line if it is not reached.
 * False: exceeded, or not in the file. */
bool budget_keeps(const char *file, const char *model, const tally *t);
void budget_write(FILE *f, const char *model, const tally *t);

/* Does this kernel of an attention op compute its products without tensor cores? Products of f32
 * do, too. */
bool is_fallback(const char *name);

/* Each line of the file is MODEL and KERNEL: a known fallback. Prints those of a model that
 * it does not list, and lines that are no longer true. False: some are not listed. */
bool fallbacks_known(const char *file, const char *model, const tally *attention);
void fallbacks_write(FILE *f, const char *model, const tally *attention);

#endif
