/* confusion.h - a picture of what a classifier takes for what. */
#ifndef CONFUSION_H
#define CONFUSION_H

#include "names/class_names.h"
#include "score.h"

/* Up to this many classes the picture is the confusion matrix: rows are true classes, columns predicted
 * ones, with the number of images in each cell. Of more classes it shows the pairs that are confused most
 * often, as bars. */
enum { CONFUSION_CLASSES = 30, CONFUSION_PAIRS = 25 };

/* what: model and images, for the title. The path ends in .png or .svg. False with the reason in why. */
bool confusion_draw(const score *v, int64_t classes, const class_names *names, const char *what,
                    const char *path, char *why, size_t size);

#endif
