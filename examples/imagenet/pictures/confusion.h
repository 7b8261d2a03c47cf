/* confusion.h - a picture of a classifier's confusions. */
#ifndef CONFUSION_H
#define CONFUSION_H

#include "names/class_names.h"
#include "score.h"

/* With at most this many classes the picture is the confusion matrix: rows are true classes,
 * columns predicted ones, cells numbers of images. With more it shows the most frequent confusions
 * as bars. */
enum { CONFUSION_CLASSES = 30, CONFUSION_PAIRS = 25 };

/* what: model and images, for the title. path ends in .png or .svg. False with the reason in
 * why. */
bool confusion_draw(const score *v, int64_t classes, const class_names *names, const char *what,
                    const char *path, char *why, size_t size);

#endif
