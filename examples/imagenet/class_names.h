/* class_names.h - the names of a model's classes in a checkpoint: metadata "class_names", one per
 * line. */
#ifndef CLASS_NAMES_H
#define CLASS_NAMES_H

#include <tapegrad/image_set.h>

void class_names_write(tp_writer *W, const tp_image_set *X);

/* Copies the name of class i from that text to buf, truncated to its size; "class i" if the text is
 * NULL or too short. Returns buf. */
const char *class_name(const char *text, int64_t i, char *buf, size_t size);

/* True if the text names the classes of X in order; else why names the first that differs. */
bool class_names_agree(const char *text, const tp_image_set *X, char *why, size_t size);

#endif
