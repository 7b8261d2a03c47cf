/* support_checkpoint.h - checkpoints with other numbers than a program wrote, in sound files. */
#ifndef TP_SUPPORT_CHECKPOINT_H
#define TP_SUPPORT_CHECKPOINT_H

#include <stdint.h>

/* Rewrites the file with this number in its metadata, or in its integer tensor of that name. */
void change_number(const char *path, const char *key, int64_t value);

#endif
