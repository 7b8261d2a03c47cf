/* image_sets.h - small image sets in the test's folder (support/folder.h). */
#ifndef TP_SUPPORT_IMAGE_SETS_H
#define TP_SUPPORT_IMAGE_SETS_H

#include <tapegrad/image_set.h>

/* Names are relative to the folder. */
void make(const char *name); /* makes a folder */

/* Writes a 40 x 36 image of one colour, by which tests recognise it. */
void write_image(const char *name, int colour);

/* Makes NAME/cat and NAME/dog with n images each. */
void make_classes(const char *name, int n, int colour);

/* Writes a tar file. An entry is NAME, an image whose colour follows from its position, or
 * NAME=CONTENT. */
void write_shard(const char *name, const char *const *entries, int n);

tp_image_set *open_set(const char *name, tp_layout layout, tp_part part);

#endif
