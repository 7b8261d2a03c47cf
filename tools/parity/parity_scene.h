/* parity_scene.h - batches of images with objects, as the cases of whole detectors store them. */
#ifndef PARITY_SCENE_H
#define PARITY_SCENE_H

#include <tapegrad/detection/objects.h>

#include "parity_case.h"

typedef struct par_scene {
    int64_t images;
    int64_t (*size)[2], (*original)[2]; /* original: NULL if the case has none */
    tp_objects *objects;
} par_scene;

/* Reads input.imageN, gt_boxesN, gt_classesN and polygons, or, in full-size cases, fills one image and reads gt_boxes,
 * gt_classes and polygons without a number. Checks categories against `classes`. False: failed. */
bool par_scene_read(parity *p, int64_t classes, par_scene *s);
/* Images are padded to multiples of size_divisibility (32). */
int64_t par_padding(parity *p);
/* The images on the tape, normalised and padded. */
tp_tensor par_scene_images(parity *p, const par_scene *s);

/* The batch that both make, with the even rule of sampling. */
tp_detection_in par_scene_in(parity *p, const par_scene *s);

/* Compares the detections in each image, converted to pixels of the original one, with det_boxesN, det_scoresN,
 * det_classesN and, if they have masks, det_masksN, and frees them. */
void par_scene_check(parity *p, const par_scene *s, tp_detected *found, double threshold);

#endif
