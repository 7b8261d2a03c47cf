/* checkpoint.h - changes numbers in valid checkpoints; reads, compares and republishes their
 * weights. */
#ifndef TP_SUPPORT_CHECKPOINT_H
#define TP_SUPPORT_CHECKPOINT_H

#include <stdint.h>

/* Sets the number `key` in the file's metadata, or its integer tensor `key`. */
void change_number(const char *path, const char *key, int64_t value);

/* Reads the n values of a tensor. */
void read_tensor(const char *path, const char *name, double *x, int64_t n);

/* The largest difference between a tensor's values in two checkpoints. */
double tensor_distance(const char *a, const char *b, const char *tensor);

/* Writes the weights of a checkpoint as Python training programs publish them: under a prefix, with
 * averages and an index table beside them, and without a description of the model. */
void publish_weights(const char *from, const char *to);

#endif
