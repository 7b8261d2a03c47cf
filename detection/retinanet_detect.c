/* retinanet_detect.c - inference: the outputs of the heads are read back for one image at a time, and detections are
 * selected on the host. */
#include <stdlib.h>
#include <string.h>

#include "anchor_list.h"
#include "inner.h"

/* Copies image b of x [B,n,K] to host. */
static bool read_image(tp_tape *T, tp_tensor x, int64_t b, float *host)
{
    tp_tensor y = tp_slice(T, x, 0, b, 1);
    if (tp_dtype_of(y) != TP_F32) y = tp_cast(T, y, TP_F32);
    return tp_read(T, y, host, (size_t)tp_numel(y) * sizeof *host);
}

/* logit, offset: room for the outputs for one image. */
static bool detect_image(tp_tape *T, const tp_retinanet_cfg *c, const tp_retinanet_out *out,
                         const tp_anchor_list *a, int64_t b, const int64_t size[2], float *logit,
                         float *offset, tp_detected *found)
{
    tp_level level[TP_ANCHOR_LEVELS];
    tp_select_cfg select = c->select;
    select.profile = c->profile;
    select.coder = c->coder;
    select.height = size[0];
    select.width = size[1];
    for (int k = 0; k < out->levels; k++) {
        const int64_t first = a->first[k];
        level[k] = (tp_level){ a->box + first, logit + first * c->classes, offset + 4 * first,
                               a->first[k + 1] - first };
        if (!read_image(T, out->logit[k], b, logit + first * c->classes)) return false;
        if (!read_image(T, out->offset[k], b, offset + 4 * first)) return false;
    }
    found->found = malloc((size_t)select.most * sizeof *found->found);
    if (found->found)
        found->n = tp_select_retinanet(&select, level, out->levels, c->classes, found->found);
    if (found->found && found->n >= 0) return true;
    tp_raise(T, TP_E_MEMORY, "no memory for the detections of image %lld", (long long)b);
    return false;
}

bool tp_retinanet_detect_of(tp_tape *T, const tp_retinanet_cfg *c, const tp_retinanet_out *out,
                            const int64_t (*size)[2], tp_detected *found)
{
    if (!c) {
        tp_raise_here(T, TP_E_STATE,
                      "retinanet_detect_of: NULL was given in place of a configuration");
        return false;
    }
    if (!tp_ok(T)) return false;
    const int64_t B = tp_dim(out->logit[0], 0);
    const bool recorded = tp_record(T, false);
    tp_anchor_list a;
    memset(found, 0, (size_t)B * sizeof *found);
    bool ok = tp__anchor_list(&a, &c->anchors, out->levels, out->size);
    float *logit = malloc((size_t)(a.n * c->classes + 1) * sizeof *logit);
    float *offset = malloc((size_t)(4 * a.n + 1) * sizeof *offset);
    if (!ok || !logit || !offset) {
        tp_raise(T, TP_E_MEMORY, "no memory for the outputs of %lld anchors", (long long)a.n);
        ok = false;
    }
    for (int64_t b = 0; ok && b < B; b++)
        ok = detect_image(T, c, out, &a, b, size[b], logit, offset, &found[b]);
    for (int64_t b = 0; !ok && b < B; b++) tp_detected_free(&found[b]);
    free(a.box);
    free(logit);
    free(offset);
    tp_record(T, recorded);
    return ok;
}

bool tp__retinanet_detect(tp_tape *T, const void *module, const tp_detection_in *in,
                          tp_detected *found)
{
    const tp_retinanet *m = module;
    const bool recorded = tp_record(T, false);
    memset(found, 0, (size_t)tp_dim(in->images, 0) * sizeof *found);
    const tp_pyramid p = tp_retinanet_pyramid(T, m, in->images);
    const tp_retinanet_out out = tp_retinanet_head_forward(T, &m->head, &p);
    const bool ok = tp_retinanet_detect_of(T, &m->cfg, &out, in->size, found);
    tp_record(T, recorded);
    return ok;
}
