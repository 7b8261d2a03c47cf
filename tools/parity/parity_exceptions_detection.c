/* parity_exceptions_detection.c - the exceptions of parity_exceptions.c for detection. */
#include "parity_detection.h"
#include "parity_exceptions.h"
#include "parity_rcnn.h"

/* ---- matching ---- */

static bool no_objects(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return par_shape(p, "input.gt_boxes").dim[0] == 0;
}

/* The numbers of a list, as many as fit. */
static int numbers(const char *text, double *x, int most)
{
    int n = 0;
    for (char *end; n < most && *text; text = *end ? end + 1 : end) x[n++] = strtod(text, &end);
    return n;
}

/* Calls f for each box with its largest IoU and whether it is the best of an object. True if all calls are. */
static bool all_boxes(parity *p, bool (*f)(const double env[], double most, bool best),
                      const double env[])
{
    int64_t n, objects;
    const tp_corners *gt = par_corners(p, "input.gt_boxes", &objects),
                     *box = par_corners(p, "input.boxes", &n);
    double *best = par_alloc(p, objects, sizeof *best);
    if (!gt || !box || !best) return false;
    for (int64_t i = 0; i < objects * n; i++)
        best[i / n] = fmax(best[i / n], tp_corners_iou(gt[i / n], box[i % n]));
    for (int64_t j = 0; j < n; j++) {
        double most = 0.0;
        bool is_best = false;
        for (int64_t i = 0; i < objects; i++) {
            const double iou = tp_corners_iou(gt[i], box[j]);
            most = fmax(most, iou);
            is_best |= iou == best[i];
        }
        if (!f(env, most, is_best)) return false;
    }
    return true;
}

/* env: thresholds before and after. */
static bool same_side(const double env[], double most, bool best)
{
    return best || (most >= env[0]) == (most >= env[1]);
}

/* True if all boxes that change sides are the best of an object, which makes them positive. */
static bool only_best_boxes(parity *p, const char *from, const char *to)
{
    double a[TP_MATCH_THRESHOLDS + 1], b[TP_MATCH_THRESHOLDS + 1];
    const int n = numbers(from, a, TP_MATCH_THRESHOLDS);
    if (numbers(to, b, TP_MATCH_THRESHOLDS) != n) return false;
    for (int i = 0; i < n; i++)
        if (a[i] != b[i] && !all_boxes(p, same_side, (double[]){ a[i], b[i] })) return false;
    return true;
}

/* env: a range of IoU. */
static bool outside(const double env[], double most, bool best)
{
    return best || !(most >= env[0] && most < env[1]);
}

/* True if the label that changes is that of boxes which are the best of an object, or of none. */
static bool only_best_labels(parity *p, const char *from, const char *to)
{
    double a[TP_MATCH_THRESHOLDS + 1], b[TP_MATCH_THRESHOLDS + 1], t[TP_MATCH_THRESHOLDS];
    const int n = numbers(from, a, TP_MATCH_THRESHOLDS + 1),
              thresholds = numbers(par_text(p, "thresholds"), t, TP_MATCH_THRESHOLDS);
    if (numbers(to, b, TP_MATCH_THRESHOLDS + 1) != n || n != thresholds + 1) return false;
    for (int i = 0; i < n; i++)
        if (a[i] != b[i] &&
            !all_boxes(p, outside, (double[]){ i ? t[i - 1] : -1.0, i < n - 1 ? t[i] : 2.0 }))
            return false;
    return true;
}

/* True if the largest IoU of every object is on the same side of both. */
static bool same_objects(parity *p, const char *from, const char *to)
{
    int64_t n, objects;
    const double a = strtod(from, NULL), b = strtod(to, NULL);
    const tp_corners *gt = par_corners(p, "input.gt_boxes", &objects),
                     *box = par_corners(p, "input.boxes", &n);
    for (int64_t i = 0; gt && box && i < objects; i++) {
        double best = 0.0;
        for (int64_t j = 0; j < n; j++) best = fmax(best, tp_corners_iou(gt[i], box[j]));
        if ((best >= a) != (best >= b)) return false;
    }
    return gt && box;
}

/* ---- anchors ---- */

/* True if the maps of the levels whose strides differ have one place, at the corner. */
static bool maps_of_one_place(parity *p, const char *from, const char *to)
{
    double a[TP_ANCHOR_LEVELS], b[TP_ANCHOR_LEVELS];
    tp_shape s = { 0 };
    const int64_t *grid = par_integers(p, "input.grid_sizes", &s);
    const int n = numbers(from, a, TP_ANCHOR_LEVELS);
    if (!grid || numbers(to, b, TP_ANCHOR_LEVELS) != n || s.dim[0] != n || number(p, "offset") != 0)
        return false;
    for (int k = 0; k < n; k++)
        if (a[k] != b[k] && (grid[2 * k] != 1 || grid[2 * k + 1] != 1 || b[k] <= 0.0)) return false;
    return true;
}

static bool one_size(parity *p, const char *from, const char *to)
{
    int64_t levels, sizes;
    (void)from, (void)to;
    par_nested(p, "anchor_sizes", &levels, &sizes);
    return sizes == 1;
}

/* ---- non-maximum suppression and selection ---- */

/* True if, in the lists whose thresholds differ, no two boxes have an IoU between the two. */
static bool no_overlap_between(parity *p, const char *from, const char *to)
{
    enum { LISTS = 64 };
    double a[LISTS], b[LISTS];
    const int n = numbers(from, a, LISTS);
    if (numbers(to, b, LISTS) != n) return false;
    for (int k = 0; k < n; k++) {
        int64_t boxes;
        const tp_corners *box = par_corners(p, par_name(p, "input.boxes%d", k), &boxes);
        for (int64_t i = 0; box && a[k] != b[k] && i < boxes * boxes; i++) {
            const double iou = tp_corners_iou(box[i / boxes], box[i % boxes]);
            if (i / boxes != i % boxes && (iou > a[k]) != (iou > b[k])) return false;
        }
        if (!box) return false;
    }
    return true;
}

static double least_of(parity *p, const char *name, int64_t *n)
{
    tp_shape s = { 0 };
    const double *x = par_values(p, name, &s);
    double least = INFINITY;
    *n = x ? par_numel(s) : 0;
    for (int64_t i = 0; i < *n; i++) least = fmin(least, x[i]);
    return least;
}

/* The lowest of the logits of region proposals that image i gives; minus infinity for other kinds. */
static double least_proposal(parity *p, int64_t i)
{
    int64_t n;
    const char *name = par_name(p, "output.logits%lld", (long long)i);
    return par_has(p, name) ? least_of(p, name, &n) : -INFINITY;
}

/* True if no logarithm of sides is as large as one of the limits, but for anchors that score less than all proposals. */
static bool no_such_logarithm(parity *p, const char *from, const char *to)
{
    const double limit = fmin(strtod(from, NULL), strtod(to, NULL));
    const bool levels = par_has(p, "input.deltas0");
    if (!levels && !par_has(p, "input.deltas")) return false;
    double w[4] = { 1, 1, 1, 1 };
    if (par_given(p, "box_weights")) numbers(par_text(p, "box_weights"), w, 4);
    for (int k = 0; k < (levels ? (int)par_series(p, "input.deltas") : 1); k++) {
        tp_shape s = { 0 }, t = { 0 };
        const double *x =
            par_values(p, levels ? par_name(p, "input.deltas%d", k) : "input.deltas", &s);
        const bool proposals = is(p, "kind", "detection.rpn_proposals");
        const double *logit =
            proposals ? par_values(p, par_name(p, "input.logits%d", k), &t) : NULL;
        for (int64_t i = 0; x && i < par_numel(s); i++) {
            if (i % 4 < 2 || x[i] / w[i % 4] < limit) continue;
            if (!logit || logit[i / 4] >= least_proposal(p, i / 4 / t.dim[1])) return false;
        }
        if (!x) return false;
    }
    return limit > 0.0;
}

/* True if in every level at most as many scores as the smaller number reach the lowest result. */
static bool lower_candidates(parity *p, const char *from, const char *to)
{
    const bool retinanet = is(p, "kind", "detection.retinanet_inference");
    const int64_t fewer = (int64_t)fmin(strtod(from, NULL), strtod(to, NULL));
    const int64_t images = retinanet ? 1 : par_series(p, "output.logits");
    if (fewer < 1) return false;
    for (int k = 0; k < (int)par_series(p, "input.logits"); k++) {
        tp_shape s = { 0 };
        const double *x = par_values(p, par_name(p, "input.logits%d", k), &s);
        const int64_t each = par_numel(s) / images;
        for (int64_t i = 0; x && i < images; i++) {
            int64_t n, above = 0;
            const double least = least_of(
                p, retinanet ? "output.scores" : par_name(p, "output.logits%lld", (long long)i),
                &n);
            for (int64_t j = 0; j < each; j++)
                above +=
                    (retinanet ? 1.0 / (1.0 + exp(-x[i * each + j])) : x[i * each + j]) >= least;
            if (above > fewer) return false;
        }
        if (!x) return false;
    }
    return true;
}

/* True if all results score more than both thresholds, and a lower one would only add to a full list. */
static bool higher_scores(parity *p, const char *from, const char *to)
{
    int64_t n;
    const double a = strtod(from, NULL), b = strtod(to, NULL),
                 least = least_of(p, "output.scores", &n);
    const bool full = n == number(p, par_given(p, "topk") ? "topk" : "max_detections");
    return least > fmax(a, b) && (b > a || full) && b >= 0.0;
}

/* Of the best boxes of each category, with the smaller threshold. */
static bool few_overlaps(parity *p, const char *from, const char *to)
{
    const double least = fmin(strtod(from, NULL), strtod(to, NULL));
    int64_t n;
    const tp_found *f = par_select_boxes(p, 1.0, &n);
    return f && least >= 0.0 && par_few_overlaps(f, n, least);
}

/* True if no detection comes from an anchor whose size differs. */
static bool no_such_anchor(parity *p, const char *from, const char *to)
{
    enum { ROOM = 10000 };
    tp_anchor_cfg a;
    json_t *was = json_loads(from, 0, NULL), *is_now = json_loads(to, 0, NULL);
    const int64_t *grid = par_anchors(p, false, &a);
    tp_found *found = par_alloc(p, ROOM, sizeof *found);
    const int64_t n = grid && found ? par_select_retinanet(p, found, ROOM) : -1;
    bool none = n >= 0 && json_array_size(was) == json_array_size(is_now);
    for (int64_t i = 0; none && i < n; i++) {
        int64_t row = found[i].row, level = 0;
        for (int64_t of; row >= (of = grid[2 * level] * grid[2 * level + 1] * a.sizes * a.ratios);
             level++)
            row -= of;
        const int64_t cell = row % (a.sizes * a.ratios),
                      size = a.ratio_major ? cell % a.sizes : cell / a.ratios;
        none =
            json_number_value(json_array_get(json_array_get(was, (size_t)level), (size_t)size)) ==
            json_number_value(json_array_get(json_array_get(is_now, (size_t)level), (size_t)size));
    }
    json_decref(was);
    json_decref(is_now);
    return none;
}

/* ---- losses of region proposals in mmdetection ---- */

/* True if no predicted logarithm of a side, of either sign, is as large as one of the limits. */
static bool no_such_prediction(parity *p, const char *from, const char *to)
{
    const double limit = fmin(strtod(from, NULL), strtod(to, NULL));
    for (int k = 0; k < (int)par_series(p, "input.bbox_pred"); k++) {
        tp_shape s = { 0 };
        const double *x = par_values(p, par_name(p, "input.bbox_pred%d", k), &s);
        if (!x || s.ndim != 4) return false;
        for (int64_t i = 0; i < par_numel(s); i++)
            if (i / (s.dim[2] * s.dim[3]) % 4 >= 2 && fabs(x[i]) >= limit) return false;
    }
    return limit > 0.0;
}

/* The lowest score, or the shortest side, of the proposals of image i. */
static double least_result(parity *p, int i, bool side)
{
    tp_shape s = { 0 };
    const double *x = par_values(p, par_name(p, "output.proposals%d", i), &s);
    double least = INFINITY;
    for (int64_t k = 0; x && k < par_numel(s); k += 5)
        least = fmin(least, side ? fmin(x[k + 2] - x[k], x[k + 3] - x[k + 1]) : x[k + 4]);
    return x ? least : -INFINITY;
}

/* True if in every level at most as many scores as the smaller number reach the lowest proposal. */
static bool lower_predictions(parity *p, const char *from, const char *to)
{
    const int64_t fewer = (int64_t)fmin(strtod(from, NULL), strtod(to, NULL));
    for (int k = 0; k < (int)par_series(p, "input.cls_score"); k++) {
        tp_shape s = { 0 };
        const double *x = par_values(p, par_name(p, "input.cls_score%d", k), &s);
        const int64_t each = x && s.dim[0] ? par_numel(s) / s.dim[0] : 0;
        for (int64_t i = 0; x && i < s.dim[0]; i++) {
            int64_t above = 0;
            for (int64_t j = 0; j < each; j++)
                above += 1.0 / (1.0 + exp(-x[i * each + j])) >= least_result(p, (int)i, false);
            if (above > fewer) return false;
        }
        if (!x) return false;
    }
    return fewer >= 1;
}

/* True if the limit grows, but all proposals have longer sides. */
static bool longer_sides(parity *p, const char *from, const char *to)
{
    const double a = strtod(from, NULL), b = strtod(to, NULL);
    for (int i = 0; i < (int)par_series(p, "output.proposals"); i++)
        if (!(least_result(p, i, true) > b)) return false;
    return b > a;
}

/* True if no image has so many anchors with objects that one of the fractions limits them. */
static bool few_objects(parity *p, const char *from, const char *to)
{
    const double share = fmin(strtod(from, NULL), strtod(to, NULL));
    const int64_t most = rcnn_positives(p);
    return most >= 0 && (double)most <= floor(share * (double)number(p, "num"));
}

static bool one_scale(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return !par_given(p, "octave_base_scale");
}

/* True if only the second limit grows, and the detections between find no object. */
static bool nothing_between(parity *p, const char *from, const char *to)
{
    double a[3], b[3];
    if (numbers(from, a, 3) != 3 || numbers(to, b, 3) != 3 || a[0] != b[0] || a[2] != b[2])
        return false;
    return b[1] > a[1] && par_same_recall(p, (int)a[1], (int)b[1]);
}

static bool same_size(parity *p, int64_t size, int64_t most, const char *to, bool is_size)
{
    int64_t a[2], b[2];
    const int64_t other = strtoll(to, NULL, 10);
    par_view_size(p, size, most, a);
    par_view_size(p, is_size ? other : size, is_size ? most : other, b);
    return a[0] == b[0] && a[1] == b[1];
}

static bool other_side_decides(parity *p, const char *from, const char *to)
{
    return strtoll(from, NULL, 10) == number(p, "short_edge")
               ? same_size(p, number(p, "short_edge"), number(p, "max_size"), to, true)
               : same_size(p, number(p, "short_edge"), number(p, "max_size"), to, false);
}

/* True if no stage adds positions, whose tables depend on the size, or if both sizes give the same tables. */
static bool same_tables(parity *p, const char *from, const char *to)
{
    const char *arch = par_text(p, "arch");
    const int64_t a = strtoll(from, NULL, 10), b = strtoll(to, NULL, 10);
    return !arch || !strstr(arch, "a1") || (a > 0 && b > 0 && (a + 31) / 32 == (b + 31) / 32);
}

/* True if windows of this size, in chunks with their neighbours, see a whole map. */
static bool sees_all(int64_t window, const int64_t map[2])
{
    return window > 0 && map[0] <= 2 * window && map[1] <= 2 * window;
}

/* True if stages differ only in absolute windows that see their whole map. */
static bool same_stages(parity *p, const char *from, const char *to)
{
    const tp_shape x = par_shape(p, "input.x");
    tp_vil_cfg a = { 0 }, b = { 0 };
    char why[256];
    if (x.ndim != 4 || !tp_vil_parse(&a, from, why, sizeof why) ||
        !tp_vil_parse(&b, to, why, sizeof why) || a.stages != b.stages)
        return false;
    for (int k = 0; k < a.stages; k++) {
        const int64_t map[2] = { x.dim[2] / (4 << k), x.dim[3] / (4 << k) };
        tp_vil_stage s = a.stage[k], t = b.stage[k];
        if (s.absolute && sees_all(s.feature, map) && sees_all(t.feature, map))
            t.feature = s.feature;
        if (s.heads != t.heads || s.blocks != t.blocks || s.dim != t.dim || s.patch != t.patch ||
            s.global != t.global || s.feature != t.feature || s.dense != t.dense ||
            s.absolute != t.absolute)
            return false;
    }
    return true;
}

static bool two_spellings(parity *p, const char *from, const char *to)
{
    (void)p;
    return are(from, to, "longformerauto", "longformerhand");
}

/* True if a name was left out of which the file has neither values nor gradients. */
static bool not_stored(parity *p, const char *from, const char *to)
{
    const char *at = NULL, *name;
    if (strlen(to) >= strlen(from)) return false;
    while ((name = par_next_name(p, "unused_params", &at)))
        if (!strstr(to, name) &&
            (par_has(p, par_name(p, "param.%s", name)) || par_has(p, par_name(p, "grad.%s", name))))
            return false;
    return true;
}

#define KIND "detection."
/* clang-format off */
const par_exception par_detection_exceptions[] = {
    { KIND "*anchors", "strides", "the map has one place", maps_of_one_place },
    { KIND "anchors", "order", "there is one size", one_size },
    { KIND "matcher", "thresholds", "all boxes that change sides are the best of an object, or there are no objects", only_best_boxes },
    { KIND "matcher", "labels", "only boxes that are the best of an object have this label, or none", only_best_labels },
    { KIND "matcher", "allow_low_quality_matches", "there are no objects", no_objects },
    { KIND "mm_assigner", "*_iou_thr", "all boxes that change sides are the best of an object", only_best_boxes },
    { KIND "mm_assigner", "min_pos_iou", "the best overlaps of all objects are on the same side", same_objects },
    { KIND "preprocess", "short_edge", "the longer side decides the size", other_side_decides },
    { KIND "preprocess", "max_size", "the shorter side decides the size", other_side_decides },
    { KIND "box_inference", "nms_thresh", "no two of the best boxes of a category overlap that much", few_overlaps },
    { KIND "nms", "thresholds", "no two boxes of the list overlap that much", no_overlap_between },
    { KIND "*", "scale_clamp", "no logarithm is that large, but for anchors below all proposals", no_such_logarithm },
    { KIND "rpn_proposals", "pre_nms_topk", "candidates of that rank score less than all proposals", lower_candidates },
    { KIND "retinanet_inference", "topk_candidates", "candidates of that rank score less than all detections", lower_candidates },
    { KIND "retinanet_inference", "anchor_sizes", "no detection comes from such an anchor", no_such_anchor },
    { KIND "*_inference", "score_thresh", "all detections score more, and the list is full", higher_scores },
    { KIND "lr_schedule", "max_iter", "rates do not depend on the number of iterations", NULL },
    { KIND "box_head_loss", "scale_clamp", "losses decode no box", NULL },
    { KIND "mm_rpn_loss", "scale_clamp", "no predicted logarithm is that large", no_such_prediction },
    { KIND "mm_rpn_loss", "nms_pre", "candidates of that rank score less than all proposals", lower_predictions },
    { KIND "mm_rpn_loss", "min_box_size", "all proposals have longer sides", longer_sides },
    { KIND "mm_rpn_loss", "pos_fraction", "no image has so many anchors with objects", few_objects },
    { KIND "mm_rpn_loss", "order", "there is one size", one_scale },
    { KIND "*", "img_size", "there are no tables of positions, or they have the same sizes", same_tables },
    { KIND "*", "attn_type", "two implementations of one function", two_spellings },
    { KIND "vil_backbone", "arch", "the windows see the whole map, or the text means the same", same_stages },
    { KIND "*", "unused_params", "the file has nothing of this name", not_stored },
    { KIND "coco_eval_raw", "max_dets", "the detections between both limits find no object", nothing_between },
    { NULL, NULL, NULL, NULL },
};
/* clang-format on */
