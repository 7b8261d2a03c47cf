/* parity_images.h - kinds of image operations, and images in the files of cases. */
#ifndef PARITY_IMAGES_H
#define PARITY_IMAGES_H

#include <tapegrad/image.h>

#include "parity_case.h"

/* Fills image with the tensor `name` [H,W,3], and compares an image with one. */
void par_read_image(parity *p, const char *name, tp_image *image);
void par_check_image(parity *p, const char *name, const tp_image *image);
/* Three numbers of the metadata, one for each channel. */
void par_three(parity *p, const char *key, double least, double most, float x[3]);

void par_run_images(parity *p);
void par_run_mixing(parity *p);
void par_run_metrics(parity *p); /* parity_metrics.c */

#endif
