/* anchors.h - anchor boxes, relative to which detectors predict (detection library). */
#ifndef TAPEGRAD_DETECTION_ANCHORS_H
#define TAPEGRAD_DETECTION_ANCHORS_H

#include <tapegrad/detection/boxes.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_ANCHOR_LEVELS = 8, TP_ANCHOR_SIZES = 8 };

/* Each level has an anchor of every size and aspect ratio at every position of its feature map. */
typedef struct tp_anchor_cfg {
    int levels, sizes, ratios;
    double stride[TP_ANCHOR_LEVELS];
    double size[TP_ANCHOR_LEVELS][TP_ANCHOR_SIZES]; /* square root of the area */
    double ratio[TP_ANCHOR_SIZES];                  /* height / width */
    double offset; /* of the first centre from the image's corner, in strides */
    /* Order. true (mmdetection): all sizes of the first ratio come first. false: all ratios of the
     * first size. */
    bool ratio_major;
} tp_anchor_cfg;

/* The published anchors. Region proposal networks (RPN): strides 4 to 64, sizes 32 to 512, one for
 * each level. RetinaNet: strides 8 to 128, sizes 32 to 512, each times 1, 2^(1/3) and 2^(2/3).
 * Ratios of both: 0.5, 1, 2. */
TP_API tp_anchor_cfg tp_anchors_rpn(void);
TP_API tp_anchor_cfg tp_anchors_retinanet(tp_detection_profile profile);
/* False, with the reason in why, if a number is out of range. */
TP_API bool tp_anchor_check(const tp_anchor_cfg *c, char *why, size_t size);

/* The anchors of a level centred at 0, rounded to float: cell [sizes * ratios]. */
TP_API void tp_anchor_cells(const tp_anchor_cfg *c, int level, tp_corners *cell);
/* The anchors of a level at all positions of its map, by row, column, and in the order of the
 * cells: anchor [height * width * sizes * ratios]. */
TP_API void tp_anchors(const tp_anchor_cfg *c, int level, int64_t height, int64_t width,
                       tp_corners *anchor);

#ifdef __cplusplus
}
#endif
#endif
