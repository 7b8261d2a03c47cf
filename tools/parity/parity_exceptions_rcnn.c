/* parity_exceptions_rcnn.c - the exceptions of parity_exceptions.c for whole Mask R-CNN. Reasons are looked for in what
 * the unchanged case decides (rcnn_facts). */
#include "parity_exceptions.h"
#include "parity_rcnn.h"

/* Calls f with the facts and both numbers. */
static bool with_facts(parity *p, const char *from, const char *to,
                       bool (*f)(const rcnn_facts *x, double a, double b))
{
    rcnn_facts x;
    const bool same = rcnn_facts_of(p, &x) && f(&x, strtod(from, NULL), strtod(to, NULL));
    rcnn_facts_free(&x);
    return same;
}

/* ---- nothing to learn from, nothing to find ---- */

static bool any_objects(parity *p)
{
    for (int b = 0; b < (int)par_series(p, "input.gt_boxes"); b++)
        if (par_shape(p, par_name(p, "input.gt_boxes%d", b)).dim[0] > 0) return true;
    return par_has(p, "input.gt_boxes");
}

static bool no_objects(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return !any_objects(p);
}

static bool no_detections(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return !par_has_any(p, "output.det_");
}

static bool given_proposals(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "proposals_given", "1") && no_detections(p, from, to);
}

static bool basic_blocks(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "block", "basic");
}

/* ---- anchors ---- */

/* True if the box is the whole image. */
static bool is_whole(tp_corners box, const int64_t size[2])
{
    return box.x1 == 0.0 && box.y1 == 0.0 && box.x2 == (double)size[1] && box.y2 == (double)size[0];
}

/* True if no anchor of a level is sampled with an object, and none gives a proposal but the whole image. */
static bool idle_level(const rcnn_facts *x, int level)
{
    int64_t first = 0;
    for (int k = 0; k < level; k++) first += x->anchors[k];
    const int64_t end = first + x->anchors[level];
    for (int64_t b = 0; b < x->scene->images; b++) {
        for (int64_t i = first; i < end; i++)
            if (x->steps.rpn.label[b * x->steps.rpn.n + i] == 1) return false;
        for (int mode = 0; mode < 2 && !x->given; mode++)
            for (int64_t i = 0; i < x->proposals[mode][b].n; i++) {
                const tp_found *f = &x->proposals[mode][b].found[i];
                if (f->row >= first && f->row < end && !is_whole(f->box, x->scene->size[b]))
                    return false;
            }
    }
    return true;
}

/* True if all levels whose sizes differ are idle. */
static bool idle_anchors(parity *p, const char *from, const char *to)
{
    rcnn_facts x;
    json_t *was = json_loads(from, 0, NULL), *is_now = json_loads(to, 0, NULL);
    bool idle = rcnn_facts_of(p, &x) && json_array_size(was) == RCNN_LEVELS &&
                json_array_size(is_now) == RCNN_LEVELS;
    for (int k = 0; idle && k < RCNN_LEVELS; k++)
        idle = json_equal(json_array_get(was, (size_t)k), json_array_get(is_now, (size_t)k)) ||
               idle_level(&x, k);
    json_decref(was);
    json_decref(is_now);
    rcnn_facts_free(&x);
    return idle;
}

/* True if anchor i, with its object and its prediction, gives the loss the same signs with both boxes. The terms of the
 * L1 loss are added to sum. */
static bool same_signs(const rcnn_facts *x, const tp_rpn_targets *const t[2], int64_t i,
                       double sum[2])
{
    const int64_t b = i / t[0]->n;
    int64_t row = i % t[0]->n;
    double d[2][4];
    int k = 0;
    for (; row >= x->anchors[k]; k++) row -= x->anchors[k];
    for (int side = 0; side < 2; side++) {
        tp_box_encode(&x->cfg.rpn.coder, t[side]->anchor[i % t[0]->n],
                      x->scene->objects[b].box[t[side]->object[i]], d[side]);
        for (int j = 0; j < 4; j++) {
            d[side][j] -= (double)x->offset[b][k][4 * row + j];
            sum[side] += fabs(d[side][j]);
        }
    }
    for (int j = 0; j < 4; j++)
        if ((d[0][j] > 0.0) != (d[1][j] > 0.0)) return false;
    return true;
}

/* True if the changed anchors are sampled with the same objects, and the changes of their L1 losses cancel: anchors that
 * lie symmetrically about an object have such, and the gradient of L1 is only a sign. */
static bool cancelling_losses(parity *p, const char *from, const char *to)
{
    rcnn_facts x;
    json_t *sizes = json_loads(to, 0, NULL);
    tp_rpn_targets other = { 0 };
    bool same = rcnn_facts_of(p, &x) && x.given && x.cfg.rpn.beta == 0.0 &&
                json_array_size(sizes) == RCNN_LEVELS && strlen(from) == strlen(to);
    if (same) {
        tp_rpn m = x.model->m.rpn;
        for (int k = 0; k < RCNN_LEVELS; k++)
            m.cfg.anchors.size[k][0] =
                json_number_value(json_array_get(json_array_get(sizes, (size_t)k), 0));
        same = m.cfg.anchors.sizes == 1 && tp_rpn_match(p->T, &m, &x.rpn, &x.in, &other);
    }
    const tp_rpn_targets *const t[] = { &x.steps.rpn, &other };
    double sum[2] = { 0.0, 0.0 };
    for (int64_t i = 0; same && i < other.n * other.images; i++) {
        same = t[0]->label[i] == t[1]->label[i];
        if (same && other.label[i] == 1)
            same = t[0]->object[i] == t[1]->object[i] && same_signs(&x, t, i, sum);
    }
    same = same && fabs(sum[0] - sum[1]) <= 1e-5 * sum[0];
    tp_rpn_targets_free(&other);
    json_decref(sizes);
    rcnn_facts_free(&x);
    return same;
}

/* True if every anchor whose label the change concerns is the best of an object. */
static bool best_anchors(parity *p, const char *from, const char *to)
{
    rcnn_facts x;
    double a[3], b[3];
    bool same = rcnn_facts_of(p, &x) && sscanf(from, "%lf,%lf,%lf", &a[0], &a[1], &a[2]) == 3 &&
                sscanf(to, "%lf,%lf,%lf", &b[0], &b[1], &b[2]) == 3 && a[0] == b[0] && a[1] == b[1];
    const tp_rpn_targets *t = &x.steps.rpn;
    for (int64_t i = 0; same && i < x.scene->images; i++) {
        const tp_objects *o = &x.scene->objects[i];
        double *iou = par_alloc(p, o->n * t->n, sizeof *iou);
        same = iou != NULL;
        if (same) tp_corners_iou_all(o->box, o->n, t->anchor, t->n, iou);
        for (int64_t k = 0; same && k < o->n * t->n; k++) {
            const double *row = iou + k / t->n * t->n;
            for (int64_t j = 0; same && iou[k] >= x.cfg.rpn.matcher.threshold[1] && j < t->n; j++)
                same = row[j] <= iou[k];
        }
    }
    rcnn_facts_free(&x);
    return same;
}

/* ---- samples ---- */

static bool few_anchors(const rcnn_facts *x, double a, double b)
{
    for (int64_t i = 0; i < x->scene->images; i++) {
        int64_t n = 0;
        for (int64_t k = 0; k < x->steps.rpn.n; k++)
            n += x->steps.rpn.label[i * x->steps.rpn.n + k] == 1;
        if ((double)n > floor(fmin(a, b) * (double)x->cfg.rpn.samples)) return false;
    }
    return fmin(a, b) >= 0.0 && fmax(a, b) <= 1.0;
}

static bool few_regions(const rcnn_facts *x, double a, double b)
{
    const tp_regions *r = &x->steps.sampled;
    for (int64_t i = 0; i < x->scene->images; i++) {
        int64_t n = 0;
        for (int64_t k = r->start[i]; k < r->start[i + 1]; k++)
            n += r->category[k] < x->cfg.box.classes;
        if ((double)n > floor(fmin(a, b) * (double)x->cfg.samples)) return false;
    }
    return fmin(a, b) >= 0.0 && fmax(a, b) <= 1.0;
}

static bool few_sampled_anchors(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, few_anchors);
}

static bool few_sampled_regions(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, few_regions);
}

/* True if no image has as many candidates, or as many with objects, as either number allows. */
static bool fewer_candidates(const rcnn_facts *x, double a, double b)
{
    const tp_regions *r = &x->steps.sampled, *all = &x->steps.proposals;
    for (int64_t i = 0; i < x->scene->images; i++) {
        const int64_t n =
            all->start[i + 1] - all->start[i] + (x->cfg.append ? x->scene->objects[i].n : 0);
        if (n != r->start[i + 1] - r->start[i] || (double)n > fmin(a, b)) return false;
    }
    return few_regions(x, x->cfg.positive * fmin(a, b) / (double)x->cfg.samples, 1.0);
}

static bool few_candidates(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, fewer_candidates);
}

/* Objects are proposals, too, so the best box of each is itself, which is positive anyway. */
static bool objects_are_proposals(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "append_gt", "1");
}

/* ---- proposals ---- */

/* True if, in every level, at most as many logits as the smaller number reach the lowest proposal. */
static bool lower_logits(const rcnn_facts *x, double a, double b, int mode)
{
    for (int64_t i = 0; i < x->scene->images; i++) {
        const rcnn_proposals *found = &x->proposals[mode][i];
        const double least = found->n ? found->found[found->n - 1].score : -INFINITY;
        for (int k = 0; k < RCNN_LEVELS; k++) {
            int64_t above = 0;
            for (int64_t j = 0; j < x->anchors[k]; j++) above += x->logit[i][k][j] >= least;
            if ((double)above > fmin(a, b)) return false;
        }
    }
    return fmin(a, b) >= 1.0;
}

static bool lower_in_training(const rcnn_facts *x, double a, double b)
{
    return lower_logits(x, a, b, 0);
}

static bool lower_in_inference(const rcnn_facts *x, double a, double b)
{
    return lower_logits(x, a, b, 1);
}

static bool lower_training(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, lower_in_training);
}

static bool lower_inference(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, lower_in_inference);
}

/* True if all detections come from proposals of lower rank. */
static bool early_detections(const rcnn_facts *x, double a, double b)
{
    for (int64_t i = 0; i < x->scene->images; i++)
        for (int64_t k = 0; k < x->found[i].n; k++)
            if ((double)x->found[i].found[k].row >= fmin(a, b)) return false;
    return fmin(a, b) >= 1.0;
}

static bool late_proposals(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, early_detections);
}

static bool all_longer(const rcnn_facts *x, double a, double b)
{
    for (int64_t i = 0; i < x->scene->images; i++)
        for (int mode = 0; mode < 2; mode++)
            for (int64_t k = 0; k < x->proposals[mode][i].n; k++)
                if (!tp_corners_exceed(x->proposals[mode][i].found[k].box, fmax(a, b)))
                    return false;
    return fmin(a, b) >= 0.0;
}

static bool longer_sides(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, all_longer);
}

/* True if `box` is not so much larger than `from`. */
static bool much_larger(tp_corners box, tp_corners from, double limit)
{
    return log((box.x2 - box.x1) / (from.x2 - from.x1)) >= limit ||
           log((box.y2 - box.y1) / (from.y2 - from.y1)) >= limit;
}

/* True if no proposal is as large, relative to its anchor, as one of the limits says, and no detection relative to its
 * proposal. */
static bool none_larger(const rcnn_facts *x, double a, double b)
{
    const double limit = fmin(a, b);
    for (int64_t i = 0; i < x->scene->images; i++) {
        for (int mode = 0; mode < 2 && !x->given; mode++)
            for (int64_t k = 0; k < x->proposals[mode][i].n; k++) {
                const tp_found *f = &x->proposals[mode][i].found[k];
                if (much_larger(f->box, x->steps.rpn.anchor[f->row], limit)) return false;
            }
        for (int64_t k = 0; k < x->found[i].n; k++) {
            const tp_found *f = &x->found[i].found[k];
            if (much_larger(f->box, x->proposals[1][i].found[f->row].box, limit)) return false;
        }
    }
    return limit > 0.0;
}

static bool no_such_logarithm(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, none_larger);
}

/* ---- regions and detections ---- */

/* How levels are chosen. */
typedef struct levels {
    double canonical;
    int level;
} levels;

static bool same_level(const rcnn_facts *x, tp_corners box, const levels way[2])
{
    return tp_region_level(box, way[0].canonical, way[0].level, 2, 5, x->cfg.profile) ==
           tp_region_level(box, way[1].canonical, way[1].level, 2, 5, x->cfg.profile);
}

/* True if every sample, every detection and the proposal that it comes from are pooled from the same level in both
 * ways. */
static bool all_same_level(const rcnn_facts *x, const levels way[2])
{
    bool same = way[0].canonical > 0.0 && way[1].canonical > 0.0;
    for (int64_t k = 0; k < x->steps.sampled.n; k++)
        same = same && same_level(x, x->steps.sampled.box[k], way);
    for (int64_t i = 0; i < x->scene->images && x->scene->original; i++) {
        for (int64_t k = 0; k < x->found[i].n; k++) {
            const tp_found *f = &x->found[i].found[k];
            same = same && same_level(x, f->box, way) &&
                   same_level(x, x->proposals[1][i].found[f->row].box, way);
        }
    }
    return same;
}

static bool levels_of_sides(const rcnn_facts *x, double a, double b)
{
    return all_same_level(x, (levels[]){ { a, x->cfg.level }, { b, x->cfg.level } });
}

static bool levels_of_numbers(const rcnn_facts *x, double a, double b)
{
    return all_same_level(x,
                          (levels[]){ { x->cfg.canonical, (int)a }, { x->cfg.canonical, (int)b } });
}

static bool same_levels(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, levels_of_sides);
}

static bool same_numbers(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, levels_of_numbers);
}

/* Of the best boxes of each category, with the smaller threshold. */
static bool few_overlaps(parity *p, const char *from, const char *to)
{
    rcnn_facts x;
    const double least = fmin(strtod(from, NULL), strtod(to, NULL));
    bool few = rcnn_facts_of(p, &x) && x.scene->original && least >= 0.0;
    tp_detected all[RCNN_IMAGES] = { 0 };
    tp_mask_rcnn *m = par_alloc(p, 1, sizeof *m);
    if (few && m) {
        *m = x.model->m;
        m->cfg.overlap = 1.0;
        few = tp_mask_rcnn_detect(p->T, m, &x.in, all);
    }
    for (int64_t b = 0; few && b < x.scene->images; b++)
        few = par_few_overlaps(all[b].found, all[b].n, least);
    for (int b = 0; b < RCNN_IMAGES; b++) tp_detected_free(&all[b]);
    rcnn_facts_free(&x);
    return few && m;
}

/* True if all detections score more than both thresholds, and a lower one would only add to full lists. */
static bool all_higher(const rcnn_facts *x, double a, double b)
{
    for (int64_t i = 0; i < x->scene->images; i++) {
        const tp_detected *d = &x->found[i];
        if (b < a && d->n < x->cfg.most) return false;
        for (int64_t k = 0; k < d->n; k++)
            if (!(d->found[k].score > fmax(a, b))) return false;
    }
    return b >= 0.0;
}

static bool higher_scores(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, all_higher);
}

#define KIND "detection.maskrcnn"
/* clang-format off */
const par_exception par_rcnn_exceptions[] = {
    { KIND "*", "stride_in_1x1", "only bottlenecks have such a convolution", basic_blocks },
    { KIND "*", "unused_params", "a parameter without a stored gradient need not be named", fewer_names },
    { KIND "*", "anchor_sizes", "no anchor of this level has an object, or gives a proposal but the whole image", idle_anchors },
    { KIND "_full", "anchor_sizes", "the anchors lie symmetrically about their objects, and their changes cancel", cancelling_losses },
    { KIND "*", "rpn_*", "there are no objects", no_objects },
    { KIND "*", "roi_thresholds", "there are no objects", no_objects },
    { KIND "*", "roi_labels", "there are no objects", no_objects },
    { KIND "*", "smooth_l1_beta", "there are no objects", no_objects },
    { KIND "*", "append_gt", "there are no objects", no_objects },
    { KIND "*", "rpn_labels", "all anchors with this label are the best of an object", best_anchors },
    { KIND "*", "roi_allow_low_quality", "objects are proposals, and so their own best ones", objects_are_proposals },
    { KIND "*", "positive_fraction_rpn", "no image has so many anchors with objects", few_sampled_anchors },
    { KIND "*", "positive_fraction_roi", "no image has so many regions with objects", few_sampled_regions },
    { KIND "*", "roi_batch", "no image has so many candidates", few_candidates },
    { KIND, "nms_thresh", "no two of the best boxes of a category overlap that much", few_overlaps },
    { KIND "_full", "pre_nms_topk*", "proposals are given, and nothing is detected", given_proposals },
    { KIND "_full", "post_nms_topk*", "proposals are given, and nothing is detected", given_proposals },
    { KIND "_full", "rpn_nms_thresh", "proposals are given, and nothing is detected", given_proposals },
    { KIND "_full", "min_box_size", "proposals are given, and nothing is detected", given_proposals },
    { KIND "_full", "scale_clamp", "proposals are given, and nothing is detected", given_proposals },
    { KIND "_full", "nms_thresh", "nothing is detected", no_detections },
    { KIND "_full", "score_thresh", "nothing is detected", no_detections },
    { KIND "_full", "mask_threshold", "nothing is detected", no_detections },
    { KIND "_full", "max_detections", "nothing is detected", no_detections },
    { KIND, "pre_nms_topk_train", "candidates of that rank score less than all proposals", lower_training },
    { KIND, "pre_nms_topk_test", "candidates of that rank score less than all proposals", lower_inference },
    { KIND, "post_nms_topk_test", "no detection comes from proposals of that rank", late_proposals },
    { KIND, "min_box_size", "all proposals have longer sides", longer_sides },
    { KIND, "scale_clamp", "no proposal and no detection is so much larger", no_such_logarithm },
    { KIND "*", "canonical_box_size", "every region keeps its level", same_levels },
    { KIND "*", "canonical_level", "every region keeps its level", same_numbers },
    { KIND, "score_thresh", "all detections score more, and the lists are full", higher_scores },
    { NULL, NULL, NULL, NULL },
};
/* clang-format on */
