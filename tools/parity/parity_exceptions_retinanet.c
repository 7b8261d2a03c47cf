/* parity_exceptions_retinanet.c - the exceptions of parity_exceptions.c for RetinaNet and losses of detectors. Reasons are
 * looked for in what the unchanged case decides: matched anchors, scores, detections. */
#include "parity_exceptions.h"
#include "parity_retinanet.h"

enum { IMAGES = 16 };

typedef struct facts {
    tp_retinanet_cfg cfg;
    tp_retinanet_out out;
    tp_detection_in in;
    int64_t images, n;                   /* anchors of an image        */
    int64_t first[TP_ANCHOR_LEVELS + 1]; /* of the levels              */
    tp_corners *anchor;                  /* [n]                        */
    int *label;                          /* [images,n]                 */
    const double *logit[TP_ANCHOR_LEVELS], *offset[TP_ANCHOR_LEVELS];
    tp_detected found[IMAGES]; /* in pixels of the images that the network sees */
} facts;

/* The model of the case and its outputs. */
static bool run_model(parity *p, facts *f, tp_retinanet *m)
{
    if (strcmp(p->kind->kind, "detection.mm_retinanet_loss") == 0) {
        retinanet_declare_mm(p, m);
        return !p->failed && retinanet_read_mm(p, m, &f->out, &f->in);
    }
    retinanet_model *x = par_alloc(p, 1, sizeof *x);
    if (x) retinanet_declare(p, x);
    par_load(p);
    if (p->failed || !x) return false;
    *m = x->m;
    f->in = par_scene_in(p, &x->scene);
    retinanet_set_bias(p, m);
    const tp_pyramid maps = tp_retinanet_pyramid(p->T, m, f->in.images);
    f->out = tp_retinanet_head_forward(p->T, &m->head, &maps);
    return par_ok(p);
}

static void make_anchors(parity *p, facts *f)
{
    const tp_anchor_cfg *a = &f->cfg.anchors;
    for (int k = 0; k < f->out.levels; k++)
        f->first[k + 1] =
            f->first[k] + f->out.size[k][0] * f->out.size[k][1] * a->sizes * a->ratios;
    f->n = f->first[f->out.levels];
    f->anchor = par_alloc(p, f->n, sizeof *f->anchor);
    f->label = par_alloc(p, f->images * f->n, sizeof *f->label);
    for (int k = 0; f->anchor && k < f->out.levels; k++) {
        tp_anchors(a, k, f->out.size[k][0], f->out.size[k][1], f->anchor + f->first[k]);
        f->logit[k] = par_read(p, f->out.logit[k]);
        f->offset[k] = par_read(p, f->out.offset[k]);
    }
}

/* Runs the case again. False: failed. */
static bool facts_of(parity *p, facts *f)
{
    tp_retinanet *m = par_alloc(p, 1, sizeof *m);
    *f = (facts){ 0 };
    par_release(p);
    par_begin(p);
    tp_record(p->T, false);
    if (!m || !run_model(p, f, m)) return false;
    f->cfg = m->cfg;
    f->images = tp_dim(f->out.logit[0], 0);
    if (f->images > IMAGES) return false;
    make_anchors(p, f);
    if (!par_ok(p)) return false;
    tp_retinanet_losses_of(p->T, m, &f->out, &f->in, f->label);
    return (p->kind->large || /* such cases have no detections */
            tp_retinanet_detect_of(p->T, &f->cfg, &f->out, f->in.size, f->found)) &&
           par_ok(p);
}

static void free_facts(facts *f)
{
    for (int b = 0; b < IMAGES; b++) tp_detected_free(&f->found[b]);
}

static bool with_facts(parity *p, const char *from, const char *to,
                       bool (*test)(const facts *f, double a, double b))
{
    facts f;
    const bool same = facts_of(p, &f) && test(&f, strtod(from, NULL), strtod(to, NULL));
    free_facts(&f);
    return same;
}

/* ---- losses alone ---- */

static bool both_negative(parity *p, const char *from, const char *to)
{
    (void)p;
    return strtod(from, NULL) < 0.0 && strtod(to, NULL) < 0.0;
}

/* ---- nothing to learn from, nothing to find ---- */

static bool no_objects(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    for (int b = 0; b < (int)par_series(p, "input.gt_boxes"); b++)
        if (par_shape(p, par_name(p, "input.gt_boxes%d", b)).dim[0] > 0) return false;
    return !par_has(p, "input.gt_boxes");
}

static bool no_detections(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return !par_has_any(p, "output.det_");
}

static bool basic_blocks(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "block", "basic");
}

/* ---- matching ---- */

/* True if as many anchors are matched as the average starts from: it stays there, whatever its momentum. */
static bool average_stays(const facts *f, double a, double b)
{
    int64_t matched = 0;
    (void)a, (void)b;
    for (int64_t i = 0; i < f->images * f->n; i++)
        matched += f->label[i] >= 0 && f->label[i] < f->cfg.classes;
    return (double)(matched > 1 ? matched : 1) == f->cfg.start;
}

static bool steady_average(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, average_stays);
}

/* True if each anchor that an object overlaps most is matched to it anyway (mmdetection: to no other object). */
static bool all_best_matched(const facts *f, double a, double b)
{
    (void)a, (void)b;
    bool all = true;
    for (int64_t i = 0; i < f->images; i++) {
        const tp_objects *o = &f->in.objects[i];
        for (int64_t k = 0; k < o->n; k++) {
            double best = 0.0;
            for (int64_t j = 0; j < f->n; j++)
                best = fmax(best, tp_corners_iou(o->box[k], f->anchor[j]));
            all &= best >= f->cfg.matcher.threshold[1];
            for (int64_t j = 0; f->cfg.matcher.overwrite && j < f->n; j++)
                for (int64_t l = 0; tp_corners_iou(o->box[k], f->anchor[j]) == best && l < o->n;
                     l++)
                    all &= tp_corners_iou(o->box[l], f->anchor[j]) <= best;
        }
    }
    return all;
}

static bool best_matched(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, all_best_matched);
}

/* True if no anchor with that size is matched to an object or gives a detection. */
static bool idle_size(const facts *f, int level, int size)
{
    const tp_anchor_cfg *a = &f->cfg.anchors;
    const int64_t cells = (int64_t)a->sizes * a->ratios;
    for (int64_t b = 0; b < f->images; b++) {
        for (int64_t j = f->first[level]; j < f->first[level + 1]; j++) {
            const int label = f->label[b * f->n + j];
            if (label >= 0 && label < f->cfg.classes &&
                (j - f->first[level]) % cells / a->ratios == size)
                return false;
        }
        for (int64_t i = 0; i < f->found[b].n; i++) {
            const int64_t row = f->found[b].found[i].row;
            if (row >= f->first[level] && row < f->first[level + 1] &&
                (row - f->first[level]) % cells / a->ratios == size)
                return false;
        }
    }
    return true;
}

static bool idle_anchors(parity *p, const char *from, const char *to)
{
    facts f;
    json_t *was = json_loads(from, 0, NULL), *is_now = json_loads(to, 0, NULL);
    bool idle = facts_of(p, &f) && (int)json_array_size(was) == f.cfg.anchors.levels &&
                json_array_size(was) == json_array_size(is_now);
    for (size_t k = 0; idle && k < json_array_size(was); k++) {
        const json_t *a = json_array_get(was, k), *b = json_array_get(is_now, k);
        idle = json_array_size(a) == json_array_size(b);
        for (size_t s = 0; idle && s < json_array_size(a); s++)
            idle = json_number_value(json_array_get(a, s)) ==
                       json_number_value(json_array_get(b, s)) ||
                   idle_size(&f, (int)k, (int)s);
    }
    json_decref(was);
    json_decref(is_now);
    free_facts(&f);
    return idle;
}

/* ---- detections ---- */

/* True if, in every level, at most as many candidates (mmdetection: anchors) as the smaller number reach the lowest
 * detection. */
static bool all_lower(const facts *f, double a, double b)
{
    const int64_t K = f->cfg.classes;
    const bool anchors = f->cfg.profile == TP_MMDETECTION;
    for (int64_t i = 0; i < f->images; i++) {
        const tp_detected *d = &f->found[i];
        const double least = d->n ? d->found[d->n - 1].score : INFINITY;
        for (int k = 0; k < f->out.levels; k++) {
            const int64_t n = f->first[k + 1] - f->first[k];
            const double *x = f->logit[k] + i * n * K;
            int64_t above = 0;
            for (int64_t j = 0; j < n * K; j++) {
                const bool reaches = 1.0 / (1.0 + exp(-x[j])) >= least * (1.0 - 1e-6);
                above += reaches;
                if (reaches && anchors) j = j / K * K + K - 1; /* the next anchor */
            }
            if ((double)above > fmin(a, b)) return false;
        }
    }
    return fmin(a, b) >= 1.0;
}

static bool lower_candidates(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, all_lower);
}

/* True if no image has that many detections. */
static bool all_fewer(const facts *f, double a, double b)
{
    bool fewer = true;
    for (int64_t i = 0; i < f->images; i++) fewer &= (double)f->found[i].n <= fmin(a, b);
    return fewer && (double)f->cfg.select.most == a;
}

static bool fewer_detections(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, all_fewer);
}

/* True if no detection has so large a logarithm of a side, or, in mmdetection, so small a one. */
static bool none_larger(const facts *f, double a, double b)
{
    const double limit = fmin(a, b);
    for (int64_t i = 0; i < f->images; i++)
        for (int64_t k = 0; k < f->found[i].n; k++) {
            const int64_t row = f->found[i].found[k].row;
            int level = 0;
            while (row >= f->first[level + 1]) level++;
            const int64_t n = f->first[level + 1] - f->first[level];
            const double *x = f->offset[level] + 4 * (i * n + row - f->first[level]);
            for (int side = 2; side < 4; side++) {
                const double weight = f->cfg.coder.weight[side];
                const double y = weight != 0.0 ? x[side] / weight : x[side];
                if (y >= limit || (f->cfg.coder.both && y <= -limit)) return false;
            }
        }
    return limit > 0.0;
}

static bool no_such_logarithm(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, none_larger);
}

/* True if all detections score more than both thresholds, and a lower one would only add to full lists. */
static bool all_higher(const facts *f, double a, double b)
{
    for (int64_t i = 0; i < f->images; i++) {
        const tp_detected *d = &f->found[i];
        if (b < a && d->n < f->cfg.select.most) return false;
        for (int64_t k = 0; k < d->n; k++)
            if (!(d->found[k].score > fmax(a, b))) return false;
    }
    return b >= 0.0;
}

static bool higher_scores(parity *p, const char *from, const char *to)
{
    return with_facts(p, from, to, all_higher);
}

#define KIND "detection.retinanet"
#define MM   "detection.mm_retinanet_loss"
/* clang-format off */
const par_exception par_retinanet_exceptions[] = {
    { "detection.focal_loss", "alpha", "every negative number means no weights", both_negative },
    { KIND, "stride_in_1x1", "only bottlenecks have such a convolution", basic_blocks },
    { KIND "*", "unused_params", "a parameter without a stored gradient need not be named", fewer_names },
    { KIND "*", "anchor_sizes", "no such anchor is matched to an object, or gives a detection", idle_anchors },
    { KIND "*", "loss_normalizer_momentum", "as many anchors are matched as the average starts from", steady_average },
    { KIND "*", "thresholds", "there are no objects", no_objects },
    { KIND "*", "labels", "there are no objects", no_objects },
    { KIND "*", "smooth_l1_beta", "there are no objects", no_objects },
    { KIND "*", "allow_low_quality_matches", "the best anchors of all objects are matched to them anyway", best_matched },
    { MM, "match_low_quality", "the best anchors of all objects are matched to them anyway", best_matched },
    { MM, "min_pos_iou", "the best anchors of all objects are matched to them anyway", best_matched },
    { KIND "_full", "*_thresh", "nothing is detected", no_detections },
    { KIND "_full", "scale_clamp", "nothing is detected", no_detections },
    { KIND "_full", "topk_candidates", "nothing is detected", no_detections },
    { KIND "_full", "max_detections", "nothing is detected", no_detections },
    { KIND, "topk_candidates", "candidates of that rank score less than all detections", lower_candidates },
    { MM, "nms_pre", "anchors of that rank score less than all detections", lower_candidates },
    { KIND, "max_detections", "there are fewer detections", fewer_detections },
    { KIND, "scale_clamp", "no detection is so much larger", no_such_logarithm },
    { MM, "scale_clamp", "no detection is so much larger or smaller", no_such_logarithm },
    { KIND, "score_thresh", "all detections score more, and the lists are full", higher_scores },
    { MM, "score_thresh", "all detections score more, and the lists are full", higher_scores },
    { NULL, NULL, NULL, NULL },
};
/* clang-format on */
