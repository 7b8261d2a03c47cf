/* class_names.h - the names of a model's classes in a checkpoint: metadata "class_names", one a
 * line. */
#ifndef CLASS_NAMES_H
#define CLASS_NAMES_H

#include <tapegrad/image_set.h>

void class_names_write(tp_writer *W, const tp_image_set *X);

/* Name of class i out of that text, cut to the room in buf; its number if the text is NULL or too
 * short. Returns buf. */
const char *class_name(const char *text, int64_t i, char *buf, size_t size);

/* Does the text name the classes of X, in that order? If not, why says which differs first. */
bool class_names_agree(const char *text, const tp_image_set *X, char *why, size_t size);

#endif
