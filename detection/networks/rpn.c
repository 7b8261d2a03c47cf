/* rpn.c - the region proposal network: a logit and the offsets of a box for each anchor.
 *
 *     h = relu(conv3x3(map));  logit = conv1x1(h);  offset = conv1x1(h)
 *
 * Channels are last, so a map's predictions are already in the order of its anchors. */
#include <math.h>
#include <stdlib.h>

#include "inner.h"

/* ---- the module ---- */

static int64_t anchors_of(const tp_rpn *m)
{
    return (int64_t)m->cfg.anchors.sizes * m->cfg.anchors.ratios;
}

void tp_rpn_init(tp_params *P, tp_rpn *m, const char *name, const tp_rpn_cfg *cfg)
{
    if (!tp_params_want_module(P, m, "region proposal network")) return;
    m->cfg = *cfg;
    const int64_t D = cfg->dim, A = anchors_of(m);
    m->path = tp_push(P, name);
    tp_params_init_rule(P, tp__init_weights, &(tp_init){ TP_INIT_NORMAL, 0.01, 0.0 });
    tp_conv2d_init(P, &m->conv, "conv", D, D, 3, true, (tp_conv_cfg){ .pad = { 1, 1 } });
    tp_conv2d_init(P, &m->objectness_logits, "objectness_logits", D, A, 1, true,
                   (tp_conv_cfg){ 0 });
    tp_conv2d_init(P, &m->anchor_deltas, "anchor_deltas", D, 4 * A, 1, true, (tp_conv_cfg){ 0 });
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

tp_rpn_out tp_rpn_forward(tp_tape *T, const tp_rpn *m, const tp_pyramid *p)
{
    tp_rpn_out out = { 0 };
    if (!tp_want_module(T, m, "region proposal network")) return out;
    if (tp_ok(T) && (p->levels != m->cfg.anchors.levels || p->levels > TP_PYRAMID_LEVELS))
        tp_raise(T, TP_E_VALUE, "region proposal network: %d maps, but anchors of %d levels",
                 p->levels, m->cfg.anchors.levels);
    for (int k = 0; tp_ok(T) && k < p->levels; k++) {
        tp_enter(T, m->path);
        const tp_tensor h = tp_conv2d_forward_relu(T, &m->conv, p->map[k], TP_NONE);
        out.logit[k] = tp__detection_precise(T, tp_conv2d_forward(T, &m->objectness_logits, h));
        out.offset[k] = tp__detection_precise(T, tp_conv2d_forward(T, &m->anchor_deltas, h));
        const tp_tensor both[] = { out.logit[k], out.offset[k] };
        tp_leave_n(T, 2, both);
        for (int axis = 0; axis < 2; axis++) out.size[k][axis] = tp_dim(p->map[k], axis + 1);
        out.levels++;
    }
    return out;
}

/* Returns the anchors of all levels; free the boxes. NULL boxes: T has failed. */
static tp_anchor_list anchors_of_all(tp_tape *T, const tp_rpn *m, const tp_rpn_out *out)
{
    tp_anchor_list a = { 0 };
    if (tp_ok(T) && !tp__anchor_list(&a, &m->cfg.anchors, out->levels, out->size))
        tp_raise(T, TP_E_MEMORY, "detection: no memory for %lld elements", (long long)a.n);
    return a;
}

/* ---- training ---- */

void tp_rpn_targets_free(tp_rpn_targets *t)
{
    if (!t) return;
    free(t->anchor);
    free(t->label);
    free(t->object);
    *t = (tp_rpn_targets){ 0 };
}

/* Samples anchors by label; the others get the label -1. */
static bool sample(tp_tape *T, const tp_rpn *m, const tp_detection_in *in, int *label, int64_t n)
{
    const tp_box_sampler s = { m->cfg.samples, m->cfg.positive, in->sampling, { NULL, NULL } };
    int64_t *index = tp__detection_alloc(T, s.samples, sizeof *index), positive = 0;
    const int64_t count =
        index ? tp_sample_boxes(&s, label, n, 0, in->random, index, &positive) : -1;
    if (count < 0) tp_raise(T, TP_E_MEMORY, "region proposal network: no memory to sample anchors");
    for (int64_t i = 0; count >= 0 && i < n; i++) label[i] = -1;
    for (int64_t i = 0; i < count; i++) label[index[i]] = i < positive;
    free(index);
    return count >= 0;
}

bool tp_rpn_match(tp_tape *T, const tp_rpn *m, const tp_rpn_out *out, const tp_detection_in *in,
                  tp_rpn_targets *t)
{
    if (!tp_want_module(T, m, "region proposal network")) return false;
    if (tp_ok(T) && in->sampling == TP_SAMPLE_RANDOM && !in->random)
        tp_raise(T, TP_E_VALUE,
                 "region proposal network: set `random` of the batch, or sample evenly");
    *t = (tp_rpn_targets){ .images = tp_dim(out->logit[0], 0) };
    const tp_anchor_list a = anchors_of_all(T, m, out);
    t->anchor = a.box;
    t->n = a.n;
    t->label = t->anchor ? tp__detection_alloc(T, t->images * t->n, sizeof *t->label) : NULL;
    t->object = t->label ? tp__detection_alloc(T, t->images * t->n, sizeof *t->object) : NULL;
    bool done = t->object != NULL;
    for (int64_t b = 0; done && b < t->images; b++) {
        const tp_objects *o = &in->objects[b];
        done = tp_match_boxes(&m->cfg.matcher, o->box, o->n, t->anchor, t->n, t->object + b * t->n,
                              t->label + b * t->n);
        if (!done) {
            tp_raise(T, TP_E_MEMORY, "region proposal network: no memory to match anchors");
            break;
        }
        done = sample(T, m, in, t->label + b * t->n, t->n);
    }
    if (!done) tp_rpn_targets_free(t);
    return done;
}

/* Joins the predictions of all levels: [B * n,columns]. */
static tp_tensor join(tp_tape *T, const tp_tensor *level, int levels, int64_t B, int64_t columns)
{
    tp_tensor row[TP_PYRAMID_LEVELS];
    for (int k = 0; k < levels; k++)
        row[k] = tp_reshape(T, level[k], TP_SHAPE(B, tp_numel(level[k]) / (B * columns), columns));
    return tp_concat_n(T, 1, levels, row);
}

/* The rows of sampled anchors, those with objects first, and their targets. */
typedef struct rows {
    int64_t n, positive;
    double total; /* divisor of the losses */
    int64_t *index;
    double *label, *offset; /* [n], [positive,4] */
} rows;

static bool collect(tp_tape *T, const tp_rpn *m, const tp_detection_in *in, const tp_rpn_targets *t,
                    rows *r)
{
    int64_t room = t->images * m->cfg.samples;
    *r = (rows){ 0 };
    r->index = tp__detection_alloc(T, room, sizeof *r->index);
    r->label = tp__detection_alloc(T, room, sizeof *r->label);
    r->offset = tp__detection_alloc(T, 4 * room, sizeof *r->offset);
    if (!r->index || !r->label || !r->offset) return false;
    for (int wanted = 1; wanted >= 0; wanted--)
        for (int64_t b = 0; b < t->images; b++) {
            const int64_t before = r->n;
            for (int64_t i = b * t->n; i < (b + 1) * t->n; i++)
                if (t->label[i] == wanted && r->n < room) r->index[r->n++] = i;
            r->total += r->n > before ? (double)(r->n - before) : 1.0;
            if (wanted) r->positive = r->n;
        }
    if (m->cfg.profile == TP_DETECTRON2)
        r->total = (double)room; /* as many for each image, so the share of any process is known */
    else
        r->total = tp__detection_total(in, r->total) / tp__detection_ranks(in);
    for (int64_t i = 0; i < r->positive; i++) {
        const int64_t at = r->index[i];
        r->label[i] = 1.0;
        tp_box_encode(&m->cfg.coder, t->anchor[at % t->n],
                      in->objects[at / t->n].box[t->object[at]], r->offset + 4 * i);
    }
    return true;
}

void tp_rpn_losses(tp_tape *T, const tp_rpn *m, const tp_rpn_out *out, const tp_detection_in *in,
                   const tp_rpn_targets *t, tp_tensor loss[2])
{
    if (!tp_want_module(T, m, "region proposal network")) return;
    rows r = { 0 };
    loss[0] = loss[1] = TP_NONE;
    if (tp_ok(T) && collect(T, m, in, t, &r)) {
        const tp_tensor logit =
            tp__detection_rows(T, join(T, out->logit, out->levels, t->images, 1), 1, r.index, r.n);
        const tp_tensor offset = tp__detection_rows(
            T, join(T, out->offset, out->levels, t->images, 4), 4, r.index, r.positive);
        const tp_tensor label = tp__detection_constant(T, logit, TP_SHAPE(r.n, 1), r.label);
        const tp_tensor target =
            tp__detection_constant(T, offset, TP_SHAPE(r.positive, 4), r.offset);
        loss[0] = tp_scale(T, tp_bce_logits(T, logit, label, TP_SUM), 1.0 / r.total);
        loss[1] =
            tp_scale(T, tp__detection_box_loss(T, offset, target, m->cfg.beta), 1.0 / r.total);
    }
    free(r.index);
    free(r.label);
    free(r.offset);
}

/* ---- proposals ---- */

/* The predictions of all levels on the host. Selection takes floats; `exact` has f64 offsets, if
 * any. */
typedef struct predictions {
    tp_anchor_list anchors;
    float *logit[TP_PYRAMID_LEVELS], *offset[TP_PYRAMID_LEVELS];
    double *exact[TP_PYRAMID_LEVELS];
} predictions;

static bool all_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* Reads offsets in f64; none of another dtype. */
static bool read_exact(tp_tape *T, tp_tensor x, double **exact)
{
    const int64_t n = tp_numel(x);
    if (tp_dtype_of(x) != TP_F64) return true;
    *exact = tp__detection_alloc(T, n, sizeof **exact);
    return *exact && tp_read(T, x, *exact, (size_t)n * sizeof **exact);
}

static bool read_all(tp_tape *T, const tp_rpn *m, const tp_rpn_out *out, bool training,
                     predictions *p)
{
    *p = (predictions){ .anchors = anchors_of_all(T, m, out) };
    for (int k = 0; p->anchors.box && k < out->levels; k++) {
        p->logit[k] = tp__detection_read(T, out->logit[k]);
        p->offset[k] = p->logit[k] ? tp__detection_read(T, out->offset[k]) : NULL;
        if (!p->offset[k] || !read_exact(T, out->offset[k], &p->exact[k])) return false;
        if (training && (!all_finite(p->logit[k], tp_numel(out->logit[k])) ||
                         !all_finite(p->offset[k], tp_numel(out->offset[k])))) {
            tp_raise(T, TP_E_NONFINITE,
                     "region proposal network: predictions of level %d contain NaN or infinity; "
                     "lower the learning rate or clip gradients",
                     k);
            return false;
        }
    }
    return p->anchors.box != NULL;
}

static tp_select_cfg selection(const tp_rpn_cfg *c, const int64_t size[2], bool training)
{
    return (tp_select_cfg){ .profile = c->profile,
                            .coder = c->coder,
                            .height = size[0],
                            .width = size[1],
                            .overlap = c->overlap,
                            .candidates = c->candidates[training ? 0 : 1],
                            .most = c->most[training ? 0 : 1],
                            .side = c->side };
}

/* Returns a proposal's box without rounding offsets to floats. */
static tp_corners exact_box(const tp_select_cfg *c, const predictions *p, const tp_level *level,
                            int64_t b, const tp_found *f)
{
    tp_box_coder coder = c->coder;
    int64_t row = f->row;
    int k = 0;
    for (; k < TP_PYRAMID_LEVELS - 1 && row >= level[k].n; k++) row -= level[k].n;
    if (!p->exact[k]) return f->box;
    coder.both = c->profile == TP_MMDETECTION;
    return tp_corners_clip(
        tp_box_decode(&coder, level[k].anchor[row], p->exact[k] + 4 * (b * level[k].n + row)),
        (double)c->height, (double)c->width);
}

/* Appends the proposals of image b. */
static bool select_image(tp_tape *T, const tp_rpn_out *out, const predictions *p, int64_t b,
                         const tp_select_cfg *c, tp_regions *r)
{
    tp_level level[TP_PYRAMID_LEVELS] = { 0 };
    const tp_anchor_list *a = &p->anchors;
    tp_found *found = tp__detection_alloc(T, c->most, sizeof *found);
    for (int k = 0; k < out->levels; k++) {
        const int64_t n = a->first[k + 1] - a->first[k];
        level[k] =
            (tp_level){ a->box + a->first[k], p->logit[k] + b * n, p->offset[k] + 4 * b * n, n };
    }
    const int64_t n = found ? tp_select_proposals(c, level, out->levels, found) : -1;
    for (int64_t i = 0; i < n; i++, r->n++) {
        r->box[r->n] = exact_box(c, p, level, b, &found[i]);
        r->score[r->n] = found[i].score;
    }
    if (n < 0) tp_raise(T, TP_E_MEMORY, "region proposal network: no memory to select proposals");
    free(found);
    r->start[b + 1] = r->n;
    return n >= 0;
}

bool tp_rpn_propose(tp_tape *T, const tp_rpn *m, const tp_rpn_out *out, const int64_t (*size)[2],
                    bool training, tp_regions *r)
{
    if (!tp_want_module(T, m, "region proposal network")) return false;
    const int64_t B = tp_dim(out->logit[0], 0);
    predictions p = { 0 };
    *r = (tp_regions){ 0 };
    bool done = tp_ok(T) && read_all(T, m, out, training, &p) &&
                tp__regions_new(T, r, B, B * m->cfg.most[training ? 0 : 1]);
    for (int64_t b = 0; done && b < B; b++) {
        const tp_select_cfg c = selection(&m->cfg, size[b], training);
        done = select_image(T, out, &p, b, &c, r);
    }
    free(p.anchors.box);
    for (int k = 0; k < out->levels; k++) {
        free(p.logit[k]);
        free(p.offset[k]);
        free(p.exact[k]);
    }
    if (!done) tp_regions_free(r);
    return done;
}
