/* detection.h - object detection: all headers of the detection library.
 *
 * Steps that depend on the data (matching, sampling, non-maximum suppression, selection, pasting of
 * masks) run on the host, in double, and are deterministic. Boxes are given by their corners, in
 * pixels of the image that the network sees: pixel (row i, column j) covers [j, j + 1) x [i, i +
 * 1). Categories are 0 ... K - 1, the background is K, and -1 means ignored.
 *
 * detectron2 and mmdetection differ in details. tp_detection_profile selects one; functions say
 * where they differ. */
#ifndef TAPEGRAD_DETECTION_H
#define TAPEGRAD_DETECTION_H

#include <tapegrad/detection/anchors.h>
#include <tapegrad/detection/assign.h>
#include <tapegrad/detection/boxes.h>
#include <tapegrad/detection/detector.h>
#include <tapegrad/detection/loader.h>
#include <tapegrad/detection/mask_rcnn.h>
#include <tapegrad/detection/masks.h>
#include <tapegrad/detection/proposals.h>
#include <tapegrad/detection/pyramid.h>
#include <tapegrad/detection/retinanet.h>

#endif
