/* titles.h - what pictures say of the model and of the images that they show. */
#ifndef TITLES_H
#define TITLES_H

#include <tapegrad/image_set.h>

#include "image_file.h"

/* The last part of a path: "cvt" of "runs/cvt/". Returns buf. */
const char *title_name(const char *path, char *buf, size_t size);

/* "cvt-ls-small, update 496" for a run's checkpoint, by its folder; the preset or file of other
 * weights; "PRESET, initial weights" for a model without a file. Returns buf. */
const char *title_model(const image_file *f, const char *preset, char *buf, size_t size);

/* "imagenette-64 (valid)"; data NULL: drawn shapes. Returns buf. */
const char *title_images(const char *data, tp_part part, char *buf, size_t size);

#endif
