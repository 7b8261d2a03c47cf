/* retinanet_loss.c - the losses of RetinaNet. The host matches anchors, once per batch. The tape
 * gets a target for each anchor of a level, but offsets only of matched anchors; nothing is
 * concatenated over levels. */
#include <math.h>
#include <stdlib.h>

#include "inner.h"

/* The targets of B images with n anchors each. Anchor i of image b and level k is at B * first[k] +
 * b * count + i, where count is the level's number of anchors: its row in the level's tensors
 * [B * count, ...], after those of earlier levels. */
typedef struct targets {
    int64_t B;
    tp_anchor_list anchors;
    int *label;      /* [B * n]: a category, `classes` for background, -1 for ignored */
    int *object;     /* [B * n]: the object in the image; only for matched anchors    */
    int64_t matched; /* number of matched anchors                                     */
    int64_t least;   /* the same, but at least 1 for each image                       */
} targets;

static void free_targets(targets *t)
{
    free(t->anchors.box);
    free(t->label);
    free(t->object);
}

/* ---- matching ---- */

/* Labels the anchors of image b; match and found have room for an image's anchors. */
static bool label_image(targets *t, const tp_retinanet_cfg *c, const tp_objects *o, int64_t b,
                        int64_t *match, int *found)
{
    const tp_anchor_list *a = &t->anchors;
    int64_t matched = 0;
    if (!tp_match_boxes(&c->matcher, o->box, o->n, a->box, a->n, match, found)) return false;
    for (int k = 0; k < a->levels; k++) {
        const int64_t count = a->first[k + 1] - a->first[k];
        const int64_t to = t->B * a->first[k] + b * count;
        for (int64_t i = 0, j = a->first[k]; i < count; i++, j++) {
            const bool object = found[j] == 1;
            t->label[to + i] = object          ? o->category[match[j]]
                               : found[j] == 0 ? (int)c->classes
                                               : -1;
            t->object[to + i] = (int)match[j];
            matched += object;
        }
    }
    t->matched += matched;
    t->least += matched > 0 ? matched : 1;
    return true;
}

static bool make_targets(targets *t, const tp_retinanet_cfg *c, const tp_retinanet_out *out,
                         const tp_detection_in *in)
{
    *t = (targets){ .B = tp_dim(out->logit[0], 0) };
    bool ok = tp__anchor_list(&t->anchors, &c->anchors, out->levels, out->size);
    const size_t n = (size_t)t->anchors.n, all = n * (size_t)t->B + 1;
    int64_t *match = malloc((n + 1) * sizeof *match);
    int *found = malloc((n + 1) * sizeof *found);
    t->label = malloc(all * sizeof *t->label);
    t->object = malloc(all * sizeof *t->object);
    ok = ok && match && found && t->label && t->object;
    for (int64_t b = 0; ok && b < t->B; b++)
        ok = label_image(t, c, &in->objects[b], b, match, found);
    free(match);
    free(found);
    return ok;
}

/* ---- the boxes of matched anchors ---- */

/* The matched anchors of a level: rows in its tensors, centres, sides and targets. */
typedef struct positives {
    int64_t n;
    int64_t *row;
    double *centre, *side; /* [n,2] */
    double *goal;          /* [n,4]: offsets, or the corners of objects for the GIoU */
} positives;

static void add_positive(positives *m, const tp_retinanet_cfg *c, int64_t row, tp_corners a,
                         tp_corners object)
{
    const int64_t i = m->n++;
    m->row[i] = row;
    m->side[2 * i] = a.x2 - a.x1;
    m->side[2 * i + 1] = a.y2 - a.y1;
    m->centre[2 * i] = a.x1 + 0.5 * m->side[2 * i];
    m->centre[2 * i + 1] = a.y1 + 0.5 * m->side[2 * i + 1];
    double *goal = m->goal + 4 * i;
    if (!c->giou) {
        tp_box_encode(&c->coder, a, object, goal);
        return;
    }
    goal[0] = object.x1;
    goal[1] = object.y1;
    goal[2] = object.x2;
    goal[3] = object.y2;
}

static void find_positives(positives *m, const targets *t, const tp_retinanet_cfg *c,
                           const tp_objects *o, int level)
{
    const int64_t first = t->anchors.first[level], count = t->anchors.first[level + 1] - first;
    const int *label = t->label + t->B * first, *object = t->object + t->B * first;
    for (int64_t b = 0; b < t->B; b++)
        for (int64_t i = 0; i < count; i++) {
            const int64_t row = b * count + i;
            if (label[row] < 0 || label[row] >= c->classes) continue;
            add_positive(m, c, row, t->anchors.box[first + i], o[b].box[object[row]]);
        }
}

/* Decodes offsets [n,4] relative to anchors to boxes [n,4], as tp_box_decode does. */
static tp_tensor decode(tp_tape *T, const tp_retinanet_cfg *c, const positives *m, tp_tensor offset)
{
    const tp_shape pairs = TP_SHAPE(m->n, 2);
    const double most = tp__box_most(&c->coder);
    const bool both = c->coder.both || c->profile == TP_MMDETECTION;
    double inverse[4];
    for (int i = 0; i < 4; i++) inverse[i] = 1.0 / tp__box_weight(&c->coder, i);
    const tp_tensor side = tp__detection_constant(T, offset, pairs, m->side),
                    centre = tp__detection_constant(T, offset, pairs, m->centre),
                    scale = tp__detection_constant(T, offset, TP_SHAPE(4), inverse);
    const tp_tensor x = tp_mul(T, offset, scale);
    const tp_tensor log_side = tp_clamp(T, tp_slice(T, x, 1, 2, 2), both ? -most : -INFINITY, most);
    const tp_tensor half = tp_scale(T, tp_mul(T, tp_exp(T, log_side), side), 0.5);
    const tp_tensor middle = tp_add(T, tp_mul(T, tp_slice(T, x, 1, 0, 2), side), centre);
    const tp_tensor corners[2] = { tp_sub(T, middle, half), tp_add(T, middle, half) };
    return tp_concat_n(T, 1, 2, corners);
}

static tp_tensor loss_of_positives(tp_tape *T, const tp_retinanet_cfg *c, const positives *m,
                                   tp_tensor offset)
{
    const tp_tensor x = tp__detection_precise(T, tp__detection_rows(T, offset, 4, m->row, m->n));
    const tp_tensor goal = tp__detection_constant(T, x, TP_SHAPE(m->n, 4), m->goal);
    if (c->giou) return tp_giou(T, decode(T, c, m, x), goal, 1e-7, TP_SUM);
    return tp__detection_box_loss(T, x, goal, c->beta);
}

static tp_tensor box_loss(tp_tape *T, const tp_retinanet_cfg *c, const targets *t,
                          const tp_retinanet_out *out, const tp_objects *o)
{
    const int64_t most = t->matched;
    double *memory = tp__detection_alloc(T, 8 * most, sizeof *memory);
    int64_t *row = tp__detection_alloc(T, most, sizeof *row);
    tp_tensor sum = TP_NONE;
    for (int k = 0; memory && row && k < out->levels; k++) {
        positives m = { 0, row, memory, memory + 2 * most, memory + 4 * most };
        find_positives(&m, t, c, o, k);
        const tp_tensor loss = loss_of_positives(T, c, &m, out->offset[k]);
        sum = k ? tp_add(T, sum, loss) : loss;
    }
    free(memory);
    free(row);
    return sum;
}

/* ---- both losses ---- */

static tp_tensor class_loss(tp_tape *T, const tp_retinanet_cfg *c, const targets *t,
                            const tp_retinanet_out *out)
{
    tp_tensor sum = TP_NONE;
    for (int k = 0; k < out->levels; k++) {
        const int64_t first = t->anchors.first[k], count = t->anchors.first[k + 1] - first;
        const tp_tensor label = tp_from(T, TP_I32, TP_SHAPE(t->B, count), t->label + t->B * first);
        const tp_tensor loss = tp_focal(T, out->logit[k], label, c->alpha, c->gamma, TP_SUM);
        sum = k ? tp_add(T, sum, loss) : loss;
    }
    return sum;
}

/* Computes detectron2's moving average z <- decay z + (1 - decay) max(matched, 1). */
static double moving_normaliser(tp_tape *T, tp_retinanet *m, double matched)
{
    double z = m->cfg.start;
    if (tp_param_get(m->params, m->normalizer, TP_F64, &z, sizeof z)) {
        if (!tp_is_training(T)) return z;
        z = m->cfg.decay * z + (1.0 - m->cfg.decay) * (matched > 1 ? matched : 1);
        if (tp_param_set(m->params, m->normalizer, TP_F64, &z, sizeof z)) return z;
    }
    tp_raise(T, TP_E_STATE, "the normaliser of the losses: %s", tp_params_why(m->params));
    return z;
}

static void copy_labels(const targets *t, int *label)
{
    const tp_anchor_list *a = &t->anchors;
    for (int k = 0; k < a->levels; k++) {
        const int64_t count = a->first[k + 1] - a->first[k];
        for (int64_t b = 0; b < t->B; b++)
            for (int64_t i = 0; i < count; i++)
                label[b * a->n + a->first[k] + i] = t->label[t->B * a->first[k] + b * count + i];
    }
}

tp_detection_losses tp_retinanet_losses_of(tp_tape *T, tp_retinanet *m, const tp_retinanet_out *out,
                                           const tp_detection_in *in, int *label)
{
    if (!tp_want_module(T, m, "RetinaNet")) return (tp_detection_losses){ 0 };
    const tp_retinanet_cfg *c = &m->cfg;
    tp_detection_losses l = { .n = 2, .total = TP_NONE };
    targets t = { 0 };
    for (int i = 0; i < l.n; i++) {
        l.name[i] = tp_detector_retinanet.terms[i];
        l.term[i] = TP_NONE;
    }
    if (!tp_ok(T) || !tp__detection_check_objects(T, "RetinaNet", in->objects,
                                                  tp_dim(out->logit[0], 0), c->classes))
        return l;
    if (make_targets(&t, c, out, in)) {
        const bool least = c->profile == TP_MMDETECTION;
        const double all = tp__detection_total(in, (double)(least ? t.least : t.matched));
        const double z = least ? all : moving_normaliser(T, m, all);
        const double share = tp__detection_ranks(in) / z;
        l.term[0] = tp_scale(T, class_loss(T, c, &t, out), share);
        l.term[1] = tp_scale(T, box_loss(T, c, &t, out, in->objects), share);
        l.total = tp_add(T, l.term[0], l.term[1]);
        if (label) copy_labels(&t, label);
    } else {
        l.total = tp_raise(T, TP_E_MEMORY, "no memory for the targets of %lld anchors",
                           (long long)t.anchors.n);
    }
    free_targets(&t);
    return l;
}

tp_detection_losses tp__retinanet_losses(tp_tape *T, void *module, const tp_detection_in *in)
{
    tp_retinanet *m = module;
    const tp_pyramid p = tp_retinanet_pyramid(T, m, in->images);
    const tp_retinanet_out out = tp_retinanet_head_forward(T, &m->head, &p);
    return tp_retinanet_losses_of(T, m, &out, in, NULL);
}
