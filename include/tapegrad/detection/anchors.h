/* anchors.h - the boxes that detectors start from (detection library). */
#ifndef TAPEGRAD_DETECTION_ANCHORS_H
#define TAPEGRAD_DETECTION_ANCHORS_H

#include <tapegrad/detection/boxes.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_ANCHOR_LEVELS = 8, TP_ANCHOR_SIZES = 8 };

/* Each level has an anchor of every size and ratio at every place of its map. */
typedef struct tp_anchor_cfg {
    int levels, sizes, ratios;
    double stride[TP_ANCHOR_LEVELS];
    double size[TP_ANCHOR_LEVELS]
               [TP_ANCHOR_SIZES];  /* the root of the area                                  */
    double ratio[TP_ANCHOR_SIZES]; /* height / width                                        */
    double offset; /* of the first centre from the image's corner, in strides               */
    bool
        ratio_major; /* mmdetection: all sizes of the first ratio come first. Otherwise all ratios of the first size */
} tp_anchor_cfg;

/* Those of region proposals: strides 4 to 64, sizes 32 to 512, one a level; of RetinaNet: strides 8 to 128, sizes 32 to
 * 512 times 1, 2^(1/3), 2^(2/3). Ratios 0.5, 1, 2. */
TP_API tp_anchor_cfg tp_anchors_rpn(void);
TP_API tp_anchor_cfg tp_anchors_retinanet(tp_detection_profile profile);
/* False with the reason in why: numbers out of range. */
TP_API bool tp_anchor_check(const tp_anchor_cfg *c, char *why, size_t size);

/* Anchors around 0 of a level, rounded to float: `sizes` times `ratios`. */
TP_API void tp_anchor_cells(const tp_anchor_cfg *c, int level, tp_corners *cell);
/* Anchors of a level over a map: by row, column, and in the order of the cells. [height * width * sizes * ratios] */
TP_API void tp_anchors(const tp_anchor_cfg *c, int level, int64_t height, int64_t width,
                       tp_corners *anchor);

#ifdef __cplusplus
}
#endif
#endif
