/* ref_roi_align.h - RoIAlign in plain ops, by its definition. */
#ifndef REF_ROI_ALIGN_H
#define REF_ROI_ALIGN_H

#include <tapegrad/tapegrad.h>

/* Pools n regions with boxes [n,4] and places [n,2] on the host. */
tp_tensor ref_roi_align(tp_tape *T, const tp_tensor *map, int64_t n, double (*box)[4],
                        int32_t (*place)[2], tp_roi_align_cfg cfg);

#endif
