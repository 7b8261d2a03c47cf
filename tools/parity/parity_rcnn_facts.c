/* parity_rcnn_facts.c - what a case of Mask R-CNN decides on the way to its results. Exceptions of the audit look here for
 * the reason why a change makes no difference. */
#include <string.h>

#include "parity_rcnn.h"

/* The logits and the proposals of image b, selected again so that their anchors are known. */
static void select_proposals(parity *p, rcnn_facts *f, const tp_rpn_cfg *c,
                             const float *const *logit, const float *const *offset, int64_t b,
                             int mode)
{
    tp_level level[RCNN_LEVELS];
    const tp_corners *anchor = f->steps.rpn.anchor;
    const tp_select_cfg s = { .profile = c->profile,
                              .coder = c->coder,
                              .height = f->scene->size[b][0],
                              .width = f->scene->size[b][1],
                              .overlap = c->overlap,
                              .candidates = c->candidates[mode],
                              .most = c->most[mode],
                              .side = c->side };
    rcnn_proposals *to = &f->proposals[mode][b];
    to->found = par_alloc(p, s.most, sizeof *to->found);
    for (int k = 0; k < RCNN_LEVELS; anchor += f->anchors[k++]) {
        const int64_t n = f->anchors[k];
        level[k] = (tp_level){ anchor, logit[k] + b * n, offset[k] + 4 * b * n, n };
        f->logit[b][k] = level[k].logit;
        f->offset[b][k] = level[k].offset;
    }
    to->n = to->found ? tp_select_proposals(&s, level, RCNN_LEVELS, to->found) : -1;
    if (to->n < 0) par_fail(p, "out of memory");
}

static const float *read_floats(parity *p, tp_tensor x)
{
    const double *values = par_read(p, x);
    float *f = values ? par_alloc(p, tp_numel(x), sizeof *f) : NULL;
    for (int64_t i = 0; f && i < tp_numel(x); i++) f[i] = (float)values[i];
    return f;
}

static void collect(parity *p, rcnn_facts *f, const rcnn_model *x, const tp_detection_in *in)
{
    const float *logit[RCNN_LEVELS] = { 0 }, *offset[RCNN_LEVELS] = { 0 };
    const tp_rpn_out out = f->rpn = tp_rpn_forward(p->T, &x->m.rpn, &f->steps.pyramid);
    for (int k = 0; k < RCNN_LEVELS && par_ok(p); k++) {
        f->anchors[k] = tp_numel(out.logit[k]) / x->scene.images;
        logit[k] = read_floats(p, out.logit[k]);
        offset[k] = read_floats(p, out.offset[k]);
    }
    for (int64_t b = 0; b < x->scene.images && par_ok(p); b++)
        for (int mode = 0; mode < 2; mode++)
            select_proposals(p, f, &x->m.cfg.rpn, logit, offset, b, mode);
    if (!x->scene.original || !par_ok(p)) return;
    tp_train(p->T, false);
    tp_mask_rcnn_detect(p->T, &x->m, in, f->found);
}

bool rcnn_facts_of(parity *p, rcnn_facts *f)
{
    rcnn_model *x = par_alloc(p, 1, sizeof *x);
    *f = (rcnn_facts){ 0 };
    if (!x) return false;
    par_release(p);
    par_begin(p);
    rcnn_declare(p, x);
    par_load(p);
    if (p->failed) return false;
    f->model = x;
    f->scene = &x->scene;
    f->cfg = x->m.cfg;
    if (x->scene.images > RCNN_IMAGES) return false;
    const tp_detection_in in = f->in = par_scene_in(p, &x->scene);
    f->given = rcnn_give_proposals(p, &f->steps);
    tp_record(p->T, false);
    tp_mask_rcnn_losses(p->T, &x->m, &in, &f->steps);
    if (par_ok(p)) collect(p, f, x, &in);
    return par_ok(p);
}

void rcnn_facts_free(rcnn_facts *f)
{
    if (f->given) f->steps.proposals = (tp_regions){ 0 };
    tp_mask_rcnn_steps_free(&f->steps);
    for (int b = 0; b < RCNN_IMAGES; b++) tp_detected_free(&f->found[b]);
}
