/* parity_detection.c - cases of detection without a model: boxes, anchors, matching, sampling,
 * non-maximum suppression (NMS). Everything is computed in double, whatever the precision of the
 * run. */
#include <math.h>
#include <string.h>

#include "parity_detection.h"

/* ---- shared by the kinds ---- */

tp_corners *par_corners(parity *p, const char *name, int64_t *n)
{
    tp_shape s = { 0 };
    double *x = par_values(p, name, &s);
    *n = 0;
    if (!x) return NULL;
    if (s.ndim != 2 || s.dim[1] != 4) {
        par_fail(p, "%s must be [boxes,4]", name);
        return NULL;
    }
    *n = s.dim[0];
    return (tp_corners *)x;
}

void par_check_corners(parity *p, const char *name, const tp_corners *box, int64_t n)
{
    par_check(p, name, (const double *)box, 4 * n, par_exact(p, name));
}

void par_check_scored(parity *p, const char *name, const tp_corners *box, const double *score,
                      int64_t n)
{
    double *x = par_alloc(p, 5 * n, sizeof *x);
    for (int64_t i = 0; x && i < n; i++) {
        memcpy(x + 5 * i, &box[i], 4 * sizeof *x);
        x[5 * i + 4] = score[i];
    }
    if (x) par_check(p, name, x, 5 * n, par_limit(p, PAR_OUTPUT));
}

void par_check_found(parity *p, par_found how, const tp_found *found, int64_t n, const char *boxes,
                     const char *scores, const char *classes, const char *rows)
{
    tp_corners *box = par_alloc(p, n, sizeof *box);
    double *score = par_alloc(p, n, sizeof *score);
    int64_t *category = par_alloc(p, n, sizeof *category), *row = par_alloc(p, n, sizeof *row);
    if (!box || !score || !category || !row) return;
    for (int64_t i = 0; i < n; i++) {
        box[i] = found[i].box;
        score[i] = found[i].score;
        category[i] = found[i].category;
        row[i] = found[i].row;
    }
    const double limit = par_limit(p, PAR_OUTPUT);
    const bool exact = how == PAR_IN_DOUBLE;
    par_check(p, boxes, (const double *)box, 4 * n, exact ? par_exact(p, boxes) : limit);
    par_check(p, scores, score, n, exact ? par_exact(p, scores) : limit);
    if (classes) par_check_integers(p, classes, category, n);
    if (rows) par_check_integers(p, rows, row, n);
}

double par_share(parity *p, const char *key)
{
    const double x = par_num(p, key, PAR_NEEDED);
    if (!(x >= 0.0 && x <= 1.0)) par_illegal(p, "metadata %s = %g is not from 0 to 1", key, x);
    return x;
}

int par_samples(parity *p, const char *key)
{
    const int64_t n = par_int(p, key, 0, -1, INT32_MAX);
    return n > 0 ? (int)n : 0;
}

/* The sizes of the anchors of each level. */
static void read_sizes(parity *p, bool mm, tp_anchor_cfg *c)
{
    int64_t levels = c->levels, sizes = 1;
    const double *x = mm ? NULL : par_nested(p, "anchor_sizes", &levels, &sizes);
    const bool octaves = mm && par_given(p, "octave_base_scale");
    const double scale =
        mm ? par_num(p, octaves ? "octave_base_scale" : "anchor_scale", PAR_NEEDED) : 0.0;
    if (octaves) sizes = par_int(p, "scales_per_octave", 1, 1, TP_ANCHOR_SIZES);
    const bool common = levels == 1;
    if ((levels != c->levels && !common) || sizes > TP_ANCHOR_SIZES) {
        par_fail(p, "metadata anchor_sizes: %lld levels of %lld sizes, but %d strides",
                 (long long)levels, (long long)sizes, c->levels);
        return;
    }
    c->sizes = (int)sizes;
    for (int k = 0; k < c->levels; k++)
        for (int s = 0; s < c->sizes; s++)
            c->size[k][s] = mm ? scale * c->stride[k] * exp2(s / (double)sizes)
                               : x[(common ? 0 : k) * sizes + s];
}

void par_anchor_cfg(parity *p, bool mm, tp_anchor_cfg *c)
{
    static const char *const orders[] = { "size_major", "ratio_major", NULL };
    char why[300];
    int64_t strides, ratios;
    const double *stride = par_list(p, "strides", &strides),
                 *ratio = par_list(p, "ratios", &ratios);
    *c = (tp_anchor_cfg){ .offset = par_num(p, "offset", 0.0) };
    c->ratio_major = par_word(p, "order", mm, orders) == 1;
    if (strides > TP_ANCHOR_LEVELS || ratios > TP_ANCHOR_SIZES) {
        par_illegal(p, "metadata strides, ratios: %lld and %lld numbers are too many",
                    (long long)strides, (long long)ratios);
        return;
    }
    c->levels = (int)strides;
    c->ratios = (int)ratios;
    memcpy(c->stride, stride, (size_t)strides * sizeof *stride);
    memcpy(c->ratio, ratio, (size_t)ratios * sizeof *ratio);
    read_sizes(p, mm, c);
    if (!p->failed && !tp_anchor_check(c, why, sizeof why)) par_fail(p, "%s", why);
    par_same(p, "num_anchors", c->sizes * c->ratios);
}

const int64_t *par_anchors(parity *p, bool mm, tp_anchor_cfg *c)
{
    tp_shape s = { 0 };
    const int64_t *grid = par_integers(p, "input.grid_sizes", &s);
    par_anchor_cfg(p, mm, c);
    if (!grid || s.ndim != 2 || s.dim[1] != 2 || s.dim[0] != c->levels)
        par_fail(p, "metadata strides: %d numbers do not fit input.grid_sizes", c->levels);
    for (int64_t i = 0; grid && !p->failed && i < par_numel(s); i++)
        if (grid[i] < 0 || grid[i] > 4096)
            par_fail(p, "input.grid_sizes: maps have 0 to 4096 rows and columns");
    return p->failed ? NULL : grid;
}

tp_corners *par_level(parity *p, const tp_anchor_cfg *c, const int64_t *grid, int level, int64_t *n)
{
    const int64_t height = grid[2 * level], width = grid[2 * level + 1];
    *n = height * width * c->sizes * c->ratios;
    tp_corners *anchor = par_alloc(p, *n, sizeof *anchor);
    if (anchor) tp_anchors(c, level, height, width, anchor);
    return anchor;
}

void par_mm_level(parity *p, const int64_t *grid, int k, int64_t scores, int64_t A, int64_t size[2],
                  tp_tensor *score, tp_tensor *offset)
{
    const char *x = par_nth(p, "cls_score", k), *y = par_nth(p, "bbox_pred", k);
    *score = par_channels_last(p->T, par_take(p, x));
    *offset = par_channels_last(p->T, par_take(p, y));
    if (!par_ok(p)) return;
    for (int axis = 0; axis < 2; axis++) {
        size[axis] = grid[2 * k + axis];
        if (tp_dim(*score, axis + 1) != size[axis] || tp_dim(*offset, axis + 1) != size[axis])
            par_fail(p, "input.%s, %s do not fit input.grid_sizes", x, y);
    }
    if (tp_dim(*score, 3) != A * scores || tp_dim(*offset, 3) != 4 * A)
        par_fail(p, "input.%s, %s do not have %lld anchors in each cell", x, y, (long long)A);
}

tp_box_coder par_coder_of(parity *p, const char *key)
{
    int64_t n;
    const double *w = par_list(p, key, &n);
    tp_box_coder c = { .most = par_num(p, "scale_clamp", 0.0) };
    if (n != 0 && n != 4) par_illegal(p, "metadata %s must be four numbers", key);
    for (int i = 0; i < 4 && n == 4; i++) {
        c.weight[i] = w[i];
        if (!(w[i] > 0.0)) par_illegal(p, "metadata %s: %g is not positive", key, w[i]);
    }
    if (par_given(p, "scale_clamp") && c.most <= 0.0)
        par_illegal(p, "metadata scale_clamp is not positive");
    return c;
}

tp_box_coder par_coder(parity *p)
{
    return par_coder_of(p, "box_weights");
}

/* ---- anchors ---- */

static void run_anchors(parity *p)
{
    tp_anchor_cfg c;
    tp_corners cell[TP_ANCHOR_SIZES * TP_ANCHOR_SIZES];
    const int64_t *grid = par_anchors(p, p->kind->variant, &c);
    for (int k = 0; grid && k < c.levels; k++) {
        int64_t n;
        const tp_corners *anchor = par_level(p, &c, grid, k, &n);
        tp_anchor_cells(&c, k, cell);
        par_check_corners(p, par_nth(p, "output.cell_anchors", k), cell, c.sizes * c.ratios);
        if (anchor) par_check_corners(p, par_nth(p, "output.anchors", k), anchor, n);
    }
}

/* ---- boxes ---- */

static void run_box_iou(parity *p)
{
    int64_t n, m;
    const tp_corners *a = par_corners(p, "input.a", &n), *b = par_corners(p, "input.b", &m);
    double *iou = par_alloc(p, n * m, sizeof *iou), *ioa = par_alloc(p, n * m, sizeof *ioa);
    if (!a || !b || !iou || !ioa) return;
    tp_corners_iou_all(a, n, b, m, iou);
    for (int64_t i = 0; i < n * m; i++) ioa[i] = tp_corners_ioa(a[i / m], b[i % m]);
    par_check(p, "output.iou", iou, n * m, par_exact(p, "output.iou"));
    par_check(p, "output.ioa", ioa, n * m, par_exact(p, "output.ioa"));
}

static void run_box_coder(parity *p)
{
    int64_t n, m;
    tp_shape s = { 0 }, t = { 0 };
    const tp_box_coder c = par_coder(p);
    const tp_corners *box = par_corners(p, "input.boxes", &n),
                     *gt = par_corners(p, "input.gt_boxes", &m);
    const double *offset = par_values(p, "input.deltas", &s),
                 *probe = par_values(p, "input.probe", &t);
    if (!box || !gt || !offset || !probe) return;
    if (n != m || s.ndim != 2 || s.dim[0] != n || s.dim[1] % 4 != 0 ||
        par_numel(t) != par_numel(s)) {
        par_fail(p, "input.boxes, gt_boxes, deltas and probe do not have the same number of rows");
        return;
    }
    const int64_t k = s.dim[1] / 4;
    const char *at = NULL;
    par_same(p, "classes_per_row", k);
    for (const char *name; (name = par_next_name(p, "zero_grads", &at));)
        if (strcmp(name, "input.deltas") != 0)
            par_fail(p, "metadata zero_grads names %s, which has no gradient", name);
    double *encoded = par_alloc(p, 4 * n, sizeof *encoded),
           *grad = par_alloc(p, 4 * n * k, sizeof *grad);
    tp_corners *decoded = par_alloc(p, n * k, sizeof *decoded);
    if (!encoded || !grad || !decoded) return;
    for (int64_t i = 0; i < n; i++) tp_box_encode(&c, box[i], gt[i], encoded + 4 * i);
    for (int64_t i = 0; i < n * k; i++) {
        const double *g = probe + 4 * i;
        decoded[i] = tp_box_decode(&c, box[i / k], offset + 4 * i);
        tp_box_decode_grad(&c, box[i / k], offset + 4 * i, (tp_corners){ g[0], g[1], g[2], g[3] },
                           grad + 4 * i);
    }
    par_check(p, "output.encoded", encoded, 4 * n, par_exact(p, "output.encoded"));
    par_check_corners(p, "output.decoded", decoded, n * k);
    par_check(p, "grad.input.deltas", grad, 4 * n * k, par_exact(p, "grad.input.deltas"));
}

static void run_resize_sizes(parity *p)
{
    tp_shape s = { 0 };
    const int64_t *row = par_integers(p, "input.hw_size_max", &s);
    if (!row || s.ndim != 2 || s.dim[1] != 4) {
        par_fail(p, "input.hw_size_max must be [images,4]");
        return;
    }
    int64_t *out = par_alloc(p, 2 * s.dim[0], sizeof *out);
    for (int64_t i = 0; out && i < s.dim[0]; i++)
        tp_shortest_side(TP_DETECTRON2, row[4 * i], row[4 * i + 1], row[4 * i + 2], row[4 * i + 3],
                         out + 2 * i);
    if (out) par_check_integers(p, "output.new_hw", out, 2 * s.dim[0]);
}

/* ---- matching ---- */

void par_matcher_of(parity *p, const char *thresholds, const char *words, const char *low,
                    tp_matcher *m)
{
    int64_t n, labels;
    const double *threshold = par_list(p, thresholds, &n), *label = par_list(p, words, &labels);
    *m = (tp_matcher){ .low_quality = par_flag(p, low, false) };
    if (n < 1 || n > TP_MATCH_THRESHOLDS || labels != n + 1) {
        par_illegal(p, "metadata %s, %s: %lld thresholds and %lld labels", thresholds, words,
                    (long long)n, (long long)labels);
        return;
    }
    m->thresholds = (int)n;
    for (int64_t i = 0; i < n; i++) {
        m->threshold[i] = threshold[i];
        if (!(threshold[i] >= 0.0 && threshold[i] <= 1.0))
            par_illegal(p, "metadata %s are not from 0 to 1", thresholds);
        if (i && threshold[i] < threshold[i - 1])
            par_illegal(p, "metadata %s do not ascend", thresholds);
    }
    for (int64_t i = 0; i <= n; i++) m->label[i] = (int)label[i];
    for (int64_t i = 0; i <= n; i++)
        if (label[i] != -1.0 && label[i] != 0.0 && label[i] != 1.0)
            par_illegal(p, "metadata %s are -1, 0 and 1", words);
}

static void read_assigner(parity *p, tp_matcher *m)
{
    *m = tp_matcher_retinanet(TP_MMDETECTION);
    m->threshold[0] = par_share(p, "neg_iou_thr");
    m->threshold[1] = par_share(p, "pos_iou_thr");
    m->least = par_share(p, "min_pos_iou");
    m->low_quality = par_flag(p, "match_low_quality", true);
    if (m->threshold[1] < m->threshold[0])
        par_illegal(p, "metadata neg_iou_thr is above pos_iou_thr");
}

void par_matcher(parity *p, bool mm, tp_matcher *m)
{
    *m = (tp_matcher){ 0 };
    if (mm)
        read_assigner(p, m);
    else
        par_matcher_of(p, "thresholds", "labels", "allow_low_quality_matches", m);
}

static void run_matcher(parity *p)
{
    const bool mm = p->kind->variant;
    int64_t n, objects;
    tp_matcher m;
    const tp_corners *gt = par_corners(p, "input.gt_boxes", &objects),
                     *box = par_corners(p, "input.boxes", &n);
    par_matcher(p, mm, &m);
    double *iou = par_alloc(p, objects * n, sizeof *iou), *most = par_alloc(p, n, sizeof *most);
    int64_t *match = par_alloc(p, n, sizeof *match), *labels = par_alloc(p, n, sizeof *labels);
    int *label = par_alloc(p, n, sizeof *label);
    if (p->failed) return;
    tp_corners_iou_all(gt, objects, box, n, iou);
    tp_match(&m, iou, objects, n, match, label);
    for (int64_t j = 0; j < n; j++) {
        labels[j] = mm && label[j] == 1 ? match[j] + 1 : label[j];
        for (int64_t i = 0; i < objects; i++)
            most[j] = iou[i * n + j] > most[j] ? iou[i * n + j] : most[j];
    }
    if (mm) {
        par_check_integers(p, "output.gt_inds", labels, n);
        par_check(p, "output.max_overlaps", most, n, par_exact(p, "output.max_overlaps"));
        return;
    }
    par_check(p, "output.iou", iou, objects * n, par_exact(p, "output.iou"));
    par_check_integers(p, "output.matches", match, n);
    par_check_integers(p, "output.labels", labels, n);
}

/* ---- sampling ---- */

/* Samples by one rule and compares both parts, "output.pos" and "output.neg" with that ending. */
static void check_sample(parity *p, tp_box_sampler s, tp_sampling how, const int *label, int64_t n,
                         int background, const char *ending)
{
    int64_t *index = par_alloc(p, s.samples, sizeof *index), objects = 0;
    s.how = how;
    const int64_t count =
        index ? tp_sample_boxes(&s, label, n, background, NULL, index, &objects) : -1;
    if (count < 0) return;
    par_check_integers(p, par_name(p, "output.pos%s", ending), index, objects);
    par_check_integers(p, par_name(p, "output.neg%s", ending), index + objects, count - objects);
}

static void run_sampler(parity *p)
{
    tp_shape s = { 0 };
    const int64_t *labels = par_integers(p, "input.labels", &s), n = labels ? par_numel(s) : 0;
    tp_box_sampler sampler = { .samples = par_count(p, "num_samples", PAR_NEEDED),
                               .positive = par_num(p, "positive_fraction", PAR_NEEDED) };
    const int background = (int)par_count(p, "bg_label", PAR_NEEDED);
    int *label = par_alloc(p, n, sizeof *label);
    int64_t count[2] = { 0, 0 };
    if (!labels || !label) return;
    if (sampler.positive < 0.0 || sampler.positive > 1.0)
        par_illegal(p, "metadata positive_fraction is not from 0 to 1");
    for (int64_t i = 0; i < n; i++) {
        label[i] = (int)labels[i];
        if (label[i] != -1) count[label[i] == background]++;
    }
    sampler.order[0] = par_integers_of(p, "input.perm_pos", count[0]);
    sampler.order[1] = par_integers_of(p, "input.perm_neg", count[1]);
    for (int which = 0; which < 2 && !p->failed; which++)
        for (int64_t i = 0; i < count[which]; i++)
            if (sampler.order[which][i] < 0 || sampler.order[which][i] >= count[which])
                par_fail(p, "input.perm_* are no permutations");
    if (p->failed) return;
    check_sample(p, sampler, TP_SAMPLE_RANDOM, label, n, background, "");
    check_sample(p, sampler, TP_SAMPLE_FIRST, label, n, background, "_first_k");
    check_sample(p, sampler, TP_SAMPLE_EVEN, label, n, background, "_even");
}

/* ---- non-maximum suppression ---- */

static void run_nms(parity *p)
{
    int64_t cases, flags;
    const double *threshold = par_list(p, "thresholds", &cases),
                 *batched = par_list(p, "batched", &flags);
    const int64_t series = par_series(p, "input.boxes");
    par_same(p, "cases", series);
    if (cases != series || flags != series)
        par_fail(p, "metadata thresholds, batched: the case has %lld lists", (long long)series);
    for (int64_t k = 0; k < series && !p->failed; k++) {
        int64_t n;
        tp_shape s = { 0 };
        const tp_corners *box = par_corners(p, par_nth(p, "input.boxes", k), &n);
        const double *score = par_values(p, par_nth(p, "input.scores", k), &s);
        const char *classes = par_nth(p, "input.classes", k);
        if (!(threshold[k] >= 0.0 && threshold[k] <= 1.0))
            par_illegal(p, "metadata thresholds: %g is not from 0 to 1", threshold[k]);
        if (batched[k] != 0.0 && batched[k] != 1.0)
            par_illegal(p, "metadata batched: %g is neither 0 nor 1", batched[k]);
        const int64_t *group = batched[k] != 0.0 ? par_integers_of(p, classes, n) : NULL;
        int64_t *keep = par_alloc(p, n, sizeof *keep);
        if (par_numel(s) != n) par_fail(p, "list %lld has as many boxes as scores", (long long)k);
        if (p->failed || !box || !keep) return;
        const int64_t kept = tp_nms(box, score, group, n, threshold[k], TP_DETECTRON2, keep);
        if (kept < 0) par_fail(p, "out of memory");
        par_check_integers(p, par_nth(p, "output.keep", k), keep, kept);
    }
}

const par_kind par_detection_kinds[] = {
    { .kind = "detection.anchors", .run = run_anchors },
    { .kind = "detection.mm_anchors", .run = run_anchors, .variant = true },
    { .kind = "detection.box_iou", .run = run_box_iou },
    { .kind = "detection.box_coder", .run = run_box_coder },
    { .kind = "detection.resize_sizes", .run = run_resize_sizes },
    { .kind = "detection.matcher", .run = run_matcher },
    { .kind = "detection.mm_assigner", .run = run_matcher, .variant = true },
    { .kind = "detection.sampler", .run = run_sampler },
    { .kind = "detection.nms", .run = run_nms },
    { .kind = NULL },
};
