/* detection.h - finding objects in images: all headers of the detection library.
 *
 * Steps that depend on the data (matching, sampling, suppression, selection, pasting) run on the host, in double, and
 * always give the same result. Boxes are corners in pixels of the image that the network sees: pixel (row i, column
 * j) covers [j, j + 1) x [i, i + 1). Categories are 0 ... K - 1, the background is K, and -1 is not counted.
 *
 * Two libraries whose published results differ in details have a profile each; functions say where they differ. */
#ifndef TAPEGRAD_DETECTION_H
#define TAPEGRAD_DETECTION_H

#include <tapegrad/detection/anchors.h>
#include <tapegrad/detection/assign.h>
#include <tapegrad/detection/boxes.h>
#include <tapegrad/detection/masks.h>
#include <tapegrad/detection/proposals.h>

#endif
