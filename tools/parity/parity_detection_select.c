/* parity_detection_select.c - cases of detection: selection from the outputs of heads, masks,
 * COCO's evaluation. */
#include <string.h>
#include <tapegrad/coco_eval.h>

#include "parity_detection.h"

/* ---- selection ---- */

static tp_select_cfg read_selection(parity *p, const char *overlap, const char *candidates,
                                    const char *most)
{
    tp_select_cfg c = { .coder = par_coder(p),
                        .overlap = par_share(p, overlap),
                        .most = par_size(p, most, PAR_NEEDED) };
    if (candidates) c.candidates = par_size(p, candidates, PAR_NEEDED);
    return c;
}

/* The outputs of a head about each level: those of `classes` logits; n rows. Image `image` of
 * several. False: failed. */
static bool read_levels(parity *p, const tp_anchor_cfg *a, const int64_t *grid, int64_t classes,
                        int64_t image, tp_level *level)
{
    for (int k = 0; k < a->levels; k++) {
        tp_shape s = { 0 }, t = { 0 };
        level[k].anchor = par_level(p, a, grid, k, &level[k].n);
        const float *logit = par_floats(p, par_nth(p, "input.logits", k), &s);
        const float *offset = par_floats(p, par_nth(p, "input.deltas", k), &t);
        const int64_t n = level[k].n;
        if (p->failed || !logit || !offset) return false;
        if (par_numel(s) < (image + 1) * n * classes || (n && par_numel(s) % (n * classes)) ||
            par_numel(t) * classes != 4 * par_numel(s)) {
            par_fail(p, "input.logits%d, deltas%d are not of the %lld anchors", k, k, (long long)n);
            return false;
        }
        level[k].logit = logit + image * n * classes;
        level[k].offset = offset + image * n * 4;
    }
    return true;
}

static void run_proposals(parity *p)
{
    tp_anchor_cfg a;
    tp_shape s = { 0 };
    tp_select_cfg c = read_selection(p, "nms_thresh", "pre_nms_topk", "post_nms_topk");
    const int64_t *grid = par_anchors(p, false, &a), *hw = par_integers(p, "input.image_hw", &s);
    c.side = par_num(p, "min_box_size", 0.0);
    if (c.side < 0.0) par_illegal(p, "metadata min_box_size is negative");
    if (!grid || !hw) return;
    for (int64_t i = 0; i < par_numel(s) / 2; i++) {
        tp_level level[TP_ANCHOR_LEVELS];
        tp_found *found = par_alloc(p, c.most, sizeof *found);
        if (!found || !read_levels(p, &a, grid, 1, i, level)) return;
        c.height = hw[2 * i];
        c.width = hw[2 * i + 1];
        const int64_t n = tp_select_proposals(&c, level, a.levels, found);
        if (n < 0) par_fail(p, "out of memory");
        par_check_found(p, PAR_IN_DOUBLE, found, n, par_nth(p, "output.boxes", i),
                        par_nth(p, "output.logits", i), NULL, NULL);
    }
}

/* The number of detections; -1: failed. */
static int64_t select_retinanet(parity *p, tp_found *found, int64_t room)
{
    tp_anchor_cfg a;
    tp_level level[TP_ANCHOR_LEVELS];
    int64_t image[2];
    tp_select_cfg c = read_selection(p, "nms_thresh", "topk_candidates", "max_detections");
    const int64_t *grid = par_anchors(p, false, &a),
                  classes = par_size(p, "num_classes", PAR_NEEDED);
    c.score = par_share(p, "score_thresh");
    par_sides(p, "image_hw", image);
    c.height = image[0];
    c.width = image[1];
    if (c.most > room)
        par_fail(p, "metadata max_detections = %lld is too large", (long long)c.most);
    if (p->failed || !read_levels(p, &a, grid, classes, 0, level)) return -1;
    const int64_t n = tp_select_retinanet(&c, level, a.levels, classes, found);
    if (n < 0) par_fail(p, "out of memory");
    return n;
}

static void run_retinanet(parity *p)
{
    enum { ROOM = 10000 };
    int64_t image[2], original[2];
    const bool rescaled = par_flag(p, "boxes_rescaled", false);
    par_sides(p, "image_hw", image);
    par_sides(p, "original_hw", original);
    tp_found *found = par_alloc(p, ROOM, sizeof *found),
             *scaled = par_alloc(p, ROOM, sizeof *scaled);
    const int64_t n = found && scaled ? select_retinanet(p, found, ROOM) : -1;
    if (n < 0) return;
    memcpy(scaled, found, (size_t)n * sizeof *found);
    const int64_t left = tp_found_to_original(found, n, image, original);
    for (int64_t i = 0; i < n && rescaled; i++)
        scaled[i].box = tp_corners_scale(scaled[i].box, (double)original[1] / (double)image[1],
                                         (double)original[0] / (double)image[0]);
    par_check_found(p, PAR_IN_DOUBLE, scaled, n, "output.boxes", "output.scores", "output.classes",
                    NULL);
    par_check_found(p, PAR_IN_DOUBLE, found, left, "output.post_boxes", "output.post_scores",
                    "output.post_classes", NULL);
}

/* The selection from the outputs of a box head. NULL: failed. */
static tp_found *select_boxes(parity *p, int64_t *count)
{
    tp_select_cfg c = read_selection(p, "nms_thresh", NULL, "topk");
    tp_shape s = { 0 }, t = { 0 };
    int64_t n, image[2];
    const int64_t classes = par_size(p, "num_classes", PAR_NEEDED);
    const tp_corners *proposal = par_corners(p, "input.proposals", &n);
    const float *logit = par_floats(p, "input.scores", &s),
                *offset = par_floats(p, "input.deltas", &t);
    c.one_box = par_flag(p, "cls_agnostic", false);
    c.score = par_share(p, "score_thresh");
    par_sides(p, "image_hw", image);
    c.height = image[0];
    c.width = image[1];
    tp_found *found = par_alloc(p, c.most, sizeof *found);
    if (!proposal || !logit || !offset || !found) return NULL;
    if (par_numel(s) != n * (classes + 1) || par_numel(t) != 4 * n * (c.one_box ? 1 : classes)) {
        par_fail(p, "input.scores, deltas are not of %lld proposals and %lld classes", (long long)n,
                 (long long)classes);
        return NULL;
    }
    *count = tp_select_boxes(&c, proposal, logit, offset, n, classes, found);
    if (*count < 0) par_fail(p, "out of memory");
    return p->failed ? NULL : found;
}

static void run_boxes(parity *p)
{
    int64_t n;
    const tp_found *f = select_boxes(p, &n);
    if (f)
        par_check_found(p, PAR_IN_DOUBLE, f, n, "output.boxes", "output.scores", "output.classes",
                        "output.row");
}

/* ---- masks ---- */

static double threshold_of(parity *p)
{
    const double threshold = par_num(p, "mask_threshold", 0.5);
    if (!(threshold > 0.0)) par_illegal(p, "metadata mask_threshold is not positive");
    return threshold;
}

static void run_paste(parity *p)
{
    tp_shape s = { 0 };
    int64_t n, image[2];
    const tp_corners *box = par_corners(p, "input.boxes", &n);
    const float *mask = par_floats(p, "input.masks", &s);
    const double threshold = threshold_of(p);
    par_sides(p, "image_hw", image);
    const int64_t pixels = image[0] * image[1], side = s.ndim == 3 ? s.dim[2] : 0;
    if (!box || !mask || s.ndim != 3 || s.dim[0] != n || s.dim[1] != side || pixels > 1 << 24) {
        par_fail(p, "input.masks must be [boxes,side,side], the image below 2^24 pixels");
        return;
    }
    uint8_t *all = par_alloc(p, n * pixels, 1), *again = par_alloc(p, pixels, 1);
    for (int64_t i = 0; all && again && i < n; i++) {
        tp_rle r;
        uint8_t *out = all + i * pixels;
        tp_paste_mask(mask + i * side * side, side, box[i], threshold, image[0], image[1], out);
        if (!tp_paste_rle(mask + i * side * side, side, box[i], threshold, image[0], image[1],
                          &r)) {
            par_fail(p, "mask %lld cannot be pasted as runs", (long long)i);
            return;
        }
        tp_rle_pixels(&r, again);
        tp_rle_free(&r);
        if (memcmp(out, again, (size_t)pixels) != 0)
            par_fail(p, "mask %lld differs as runs", (long long)i);
    }
    if (all) par_check_bytes(p, "output.masks", all, n * pixels);
}

/* The pixels of object i in an image. */
static bool draw(parity *p, const tp_objects *o, int64_t i, const int64_t image[2], uint8_t *pixels)
{
    uint8_t *part = par_alloc(p, image[0] * image[1], 1);
    if (!part) return false;
    memset(pixels, 0, (size_t)(image[0] * image[1]));
    for (int64_t k = o->part[i]; k < o->part[i + 1]; k++) {
        tp_rle r;
        const double *xy = o->xy + 2 * o->point[k];
        if (!tp_rle_from_polygon(&r, xy, o->point[k + 1] - o->point[k], image[0], image[1])) {
            par_fail(p, "a polygon cannot be drawn");
            return false;
        }
        tp_rle_pixels(&r, part);
        tp_rle_free(&r);
        for (int64_t j = 0; j < image[0] * image[1]; j++) pixels[j] |= part[j];
    }
    return true;
}

/* The targets [boxes,side,side] by the outlines of the objects of the boxes. */
static bool draw_targets(parity *p, const tp_objects *o, const tp_corners *box,
                         const int64_t *object, int64_t n, int64_t side, uint8_t *target)
{
    int64_t *count = par_alloc(p, o->part[o->n], sizeof *count);
    for (int64_t k = 0; count && k < o->part[o->n]; k++) count[k] = o->point[k + 1] - o->point[k];
    for (int64_t i = 0; count && i < n; i++) {
        const bool fits = object[i] >= 0 && object[i] < o->n;
        const int64_t first = fits ? o->part[object[i]] : 0;
        if (!fits ||
            !tp_mask_target(o->xy + 2 * o->point[first], count + first,
                            o->part[object[i] + 1] - first, box[i], side, target + i * side * side))
            par_fail(p, "box %lld has no object, or one that cannot be drawn", (long long)i);
        if (p->failed) return false;
    }
    return count != NULL;
}

static void run_mask_targets(parity *p)
{
    tp_objects o = { .n = par_has(p, "output.bitmasks") ? par_shape(p, "output.bitmasks").dim[0]
                                                        : 0 };
    int64_t n, image[2];
    const tp_corners *box = par_corners(p, "input.boxes", &n);
    const int64_t *object = par_integers_of(p, "input.gt_index", n),
                  side = par_int(p, "mask_size", PAR_NEEDED, 1, 512);
    const double threshold = threshold_of(p);
    par_sides(p, "image_hw", image);
    if (!p->failed) par_polygons(p, "", &o);
    const int64_t m = side * side, pixels = image[0] * image[1];
    if (!o.part || pixels > 1 << 24)
        par_fail(p, "there are no polygons, or the image is too large");
    if (p->failed || !o.part) return;
    uint8_t *target = par_alloc(p, n * m, 1), *hard = par_alloc(p, n * m, 1),
            *drawn = par_alloc(p, (o.n + 1) * pixels, 1);
    double *soft = par_alloc(p, n * m, sizeof *soft);
    if (!target || !hard || !drawn || !soft) return;
    for (int64_t k = 0; k < o.n; k++)
        if (!draw(p, &o, k, image, drawn + k * pixels)) return;
    if (!draw_targets(p, &o, box, object, n, side, target)) return;
    for (int64_t i = 0; i < n; i++)
        tp_mask_target_from_pixels(drawn + object[i] * pixels, image[0], image[1], box[i], side,
                                   soft + i * m);
    for (int64_t i = 0; i < n * m; i++) hard[i] = soft[i] >= threshold;
    par_check_bytes(p, "output.targets_polygon", target, n * m);
    par_check_bytes(p, "output.bitmasks", drawn, o.n * pixels);
    par_check(p, "output.targets_bitmask_soft", soft, n * m,
              par_exact(p, "output.targets_bitmask_soft"));
    par_check_bytes(p, "output.targets_bitmask", hard, n * m);
}

/* ---- COCO's evaluation ---- */

/* What the library fixes, and the three limits. */
static void read_evaluation(parity *p, tp_coco_eval_opts *o)
{
    static const double areas[] = { 0, 1e10, 0, 1024, 1024, 9216, 9216, 1e10 };
    int64_t n, rows, columns;
    const double *threshold = par_list(p, "iou_thresholds", &n);
    if (n != TP_COCO_THRESHOLDS)
        par_fail(p, "metadata iou_thresholds: the library has %d", TP_COCO_THRESHOLDS);
    for (int t = 0; t < TP_COCO_THRESHOLDS && n == TP_COCO_THRESHOLDS; t++)
        if (!(threshold[t] - tp_coco_threshold(t) < 1e-12 &&
              tp_coco_threshold(t) - threshold[t] < 1e-12))
            par_fail(p, "metadata iou_thresholds: number %d of the library is %g", t + 1,
                     tp_coco_threshold(t));
    const double *area = par_nested(p, "area_ranges", &rows, &columns);
    bool same = rows == TP_COCO_AREAS && columns == 2;
    for (int i = 0; same && i < 2 * TP_COCO_AREAS; i++) same = area[i] == areas[i];
    if (!same) par_fail(p, "metadata area_ranges are not those of the library");
    const int64_t *most = par_sizes(p, "max_dets", 1, &n);
    if (n != TP_COCO_LIMITS) par_fail(p, "metadata max_dets: %d are needed", TP_COCO_LIMITS);
    for (int m = 0; m < TP_COCO_LIMITS && n == TP_COCO_LIMITS; m++) o->most[m] = (int)most[m];
    par_fixed(p, "recall_points", TP_COCO_POINTS);
}

/* Precision with the largest limit, [T,R,K,A], and recall. */
static void check_evaluation(parity *p, const tp_detections *R, tp_coco_eval_opts o,
                             const char *name)
{
    tp_coco_eval *E = tp_coco_eval_new(R, &o);
    enum { A = TP_COCO_AREAS, M = TP_COCO_LIMITS, POINTS = TP_COCO_POINTS };
    const int64_t K = tp_coco_eval_classes(E), curves = TP_COCO_THRESHOLDS * K * A;
    double *precision = par_alloc(p, curves * POINTS, sizeof *precision),
           *recall = par_alloc(p, curves * M, sizeof *recall);
    if (!tp_coco_eval_ok(E)) par_fail(p, "%s", tp_coco_eval_why(E));
    for (int64_t i = 0; precision && recall && !p->failed && i < curves; i++) {
        const int a = (int)(i % A), k = (int)(i / A % K), t = (int)(i / A / K);
        double curve[POINTS];
        tp_coco_eval_curve(E, k, t, a, M - 1, curve, NULL);
        for (int64_t r = 0; r < POINTS; r++)
            precision[((t * POINTS + r) * K + k) * A + a] = curve[r];
        for (int m = 0; m < M; m++) recall[i * M + m] = tp_coco_eval_recall(E, k, t, a, m);
    }
    if (!p->failed && precision && recall) {
        par_check_abs(p, par_name(p, "output.precision_%s", name), precision, curves * POINTS, 0.0);
        par_check_abs(p, par_name(p, "output.recall_%s", name), recall, curves * M, 0.0);
    }
    tp_coco_eval_free(E);
}

/* A file beside the case. */
static const char *beside(parity *p, const char *key)
{
    const char *path = tp_file_path(p->F), *slash = strrchr(path, '/'), *name = par_text(p, key);
    if (!name) par_fail(p, "the metadata lack '%s'", key);
    return par_name(p, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name ? name : "");
}

static void run_coco(parity *p)
{
    tp_coco_eval_opts o = { 0 };
    read_evaluation(p, &o);
    const char *gt = beside(p, "gt_file"), *dt = beside(p, "dt_file");
    if (p->failed) return;
    tp_coco *X = tp_coco_open(gt);
    tp_detections *R = tp_detections_open(X, dt);
    if (!tp_detections_ok(R)) par_fail(p, "%s", tp_detections_why(R));
    if (!p->failed && par_has(p, "output.precision_bbox")) check_evaluation(p, R, o, "bbox");
    o.kind = TP_COCO_MASKS;
    if (!p->failed && par_has(p, "output.precision_segm")) check_evaluation(p, R, o, "segm");
    tp_detections_close(R);
    tp_coco_close(X);
}

const par_kind par_select_kinds[] = {
    { .kind = "detection.rpn_proposals", .run = run_proposals },
    { .kind = "detection.retinanet_inference", .run = run_retinanet },
    { .kind = "detection.box_inference", .run = run_boxes },
    { .kind = "detection.paste_masks", .run = run_paste },
    { .kind = "detection.mask_targets", .run = run_mask_targets },
    { .kind = "detection.coco_eval_raw", .run = run_coco },
    { .kind = NULL },
};
