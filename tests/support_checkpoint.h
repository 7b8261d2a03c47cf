/* support_checkpoint.h - changes numbers in checkpoints, keeping the files valid. */
#ifndef TP_SUPPORT_CHECKPOINT_H
#define TP_SUPPORT_CHECKPOINT_H

#include <stdint.h>

/* Rewrites the file with this number in its metadata or in its integer tensor `key`. */
void change_number(const char *path, const char *key, int64_t value);

#endif
