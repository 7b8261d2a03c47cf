/* example_loader.h - loaders of examples that a function makes, for constructors that keep memory
 * of their own with the loader. */
#ifndef TP_EXAMPLE_LOADER_H
#define TP_EXAMPLE_LOADER_H

#include <tapegrad/loader.h>

/* Without s->length, with it, and of tp_examples, which shuffles in its own way. */
extern const tp_loader_kind tp__made_examples, tp__padded_examples, tp__stored_examples;

/* Opens a new loader of one of these kinds. */
void tp__examples_open(tp_loader *L, const tp_loader_kind *kind, const tp_example_source *s,
                       const tp_loader_opts *o);

/* Returns the bytes of a value; 0: a batch of them is too large, or the column is invalid. */
size_t tp__column_bytes(const tp_column *c, int64_t batch);

#define TP_NO_COLUMNS "%d columns are not 1 to %d"
#define TP_NO_COLUMN  "column %d has no dtype, no shape, or too many values for batches of %lld"

#endif
