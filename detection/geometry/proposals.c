/* proposals.c - converts the outputs of heads to boxes: region proposals, RetinaNet, box heads.
 *
 * All three gather candidates, run non-maximum suppression (NMS) by group and keep the best. They
 * differ in their candidates. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/detection/objects.h>
#include <tapegrad/detection/proposals.h>

/* The candidates of one image; NMS runs within each group. */
typedef struct pool {
    tp_found *found;
    int64_t *group;
    int64_t n, room;
} pool;

static void release(pool *p)
{
    free(p->found);
    free(p->group);
}

static bool add(pool *p, tp_found f, int64_t group)
{
    if (p->n == p->room) {
        const int64_t room = p->room ? 2 * p->room : 1024;
        tp_found *found = realloc(p->found, (size_t)room * sizeof *found);
        if (found) p->found = found;
        int64_t *groups = realloc(p->group, (size_t)room * sizeof *groups);
        if (groups) p->group = groups;
        if (!found || !groups) return false;
        p->room = room;
    }
    p->found[p->n] = f;
    p->group[p->n++] = group;
    return true;
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static tp_corners clip(const tp_select_cfg *c, tp_corners box)
{
    return tp_corners_clip(box, (double)c->height, (double)c->width);
}

/* Decodes one offset; mmdetection clamps the logarithms at both ends. */
static tp_corners decode(const tp_select_cfg *c, tp_corners box, const float *offset)
{
    const double d[] = { offset[0], offset[1], offset[2], offset[3] };
    tp_box_coder coder = c->coder;
    coder.both = c->profile == TP_MMDETECTION;
    return tp_box_decode(&coder, box, d);
}

static bool is_finite(tp_corners a)
{
    return isfinite(a.x1) && isfinite(a.y1) && isfinite(a.x2) && isfinite(a.y2);
}

/* Runs NMS on the candidates and copies the best to out; returns their number. -1: no memory. */
static int64_t finish(const tp_select_cfg *c, const pool *p, tp_found *out)
{
    const size_t n = (size_t)p->n + 1;
    tp_corners *box = malloc(n * sizeof *box);
    double *score = malloc(n * sizeof *score);
    int64_t *keep = malloc(n * sizeof *keep), kept = -1;
    if (box && score && keep) {
        for (int64_t i = 0; p->found && i < p->n; i++) {
            box[i] = p->found[i].box;
            score[i] = p->found[i].score;
        }
        kept = tp_nms(box, score, p->group, p->n, c->overlap, c->profile, keep);
        if (kept > c->most) kept = c->most;
        for (int64_t i = 0; p->found && i < kept; i++) out[i] = p->found[keep[i]];
    }
    free(box);
    free(score);
    free(keep);
    return kept;
}

/* Returns the indices of the k largest of n scores, to be freed; NULL: out of memory. */
static int64_t *best_of(const double *score, int64_t n, int64_t k, int64_t *count)
{
    int64_t *index = malloc(((size_t)n + 1) * sizeof *index);
    *count = index ? tp_top_scores(score, n, k, index) : -1;
    if (*count >= 0) return index;
    free(index);
    return NULL;
}

/* ---- region proposals ---- */

static bool propose(pool *p, const tp_select_cfg *c, const tp_level *level, int number,
                    int64_t first)
{
    double *score = malloc(((size_t)level->n + 1) * sizeof *score);
    int64_t count = 0;
    for (int64_t i = 0; score && i < level->n; i++)
        score[i] = c->profile == TP_MMDETECTION ? sigmoid(level->logit[i]) : level->logit[i];
    int64_t *best = score ? best_of(score, level->n, c->candidates, &count) : NULL;
    bool done = best != NULL;
    for (int64_t k = 0; done && k < count; k++) {
        const int64_t i = best[k];
        const tp_corners box = decode(c, level->anchor[i], level->offset + 4 * i);
        if (!is_finite(box) || !isfinite(score[i]) || !tp_corners_exceed(clip(c, box), c->side))
            continue;
        done =
            add(p, (tp_found){ .box = clip(c, box), .score = score[i], .row = first + i }, number);
    }
    free(best);
    free(score);
    return done;
}

int64_t tp_select_proposals(const tp_select_cfg *c, const tp_level *level, int levels,
                            tp_found *out)
{
    if (!c) return 0;
    pool p = { 0 };
    int64_t first = 0;
    bool done = true;
    for (int k = 0; done && k < levels; first += level[k++].n)
        done = propose(&p, c, &level[k], k, first);
    const int64_t n = done ? finish(c, &p, out) : -1;
    release(&p);
    return n;
}

/* ---- RetinaNet ---- */

/* Adds the best pairs of anchor and category. Ranks only logits above the score's: they are few. */
static bool best_pairs(pool *p, const tp_select_cfg *c, const tp_level *level, int64_t classes,
                       int64_t first)
{
    pool above = { 0 };
    int64_t count = 0, *best = NULL;
    bool done = true;
    /* the logit of the score, less a margin */
    const double least = log(c->score / (1.0 - c->score)) - 1e-9;
    for (int64_t i = 0; done && i < level->n * classes; i++) {
        if (level->logit[i] < least) continue;
        const double score = sigmoid(level->logit[i]);
        if (score > c->score)
            done =
                add(&above,
                    (tp_found){ .score = score, .category = i % classes, .row = i / classes }, 0);
    }
    double *score = malloc(((size_t)above.n + 1) * sizeof *score);
    for (int64_t i = 0; score && above.found && i < above.n; i++) score[i] = above.found[i].score;
    if (done && score) best = best_of(score, above.n, c->candidates, &count);
    done = best != NULL;
    for (int64_t k = 0; done && above.found && k < count; k++) {
        tp_found f = above.found[best[k]];
        f.box = decode(c, level->anchor[f.row], level->offset + 4 * f.row);
        f.row += first;
        done = add(p, f, f.category);
    }
    free(best);
    free(score);
    release(&above);
    return done;
}

/* Adds the best anchors with all their categories. */
static bool best_anchors(pool *p, const tp_select_cfg *c, const tp_level *level, int64_t classes,
                         int64_t first)
{
    double *score = malloc(((size_t)level->n + 1) * sizeof *score);
    int64_t count = 0;
    for (int64_t i = 0; score && i < level->n; i++) {
        score[i] = 0.0;
        for (int64_t k = 0; k < classes; k++)
            score[i] = fmax(score[i], sigmoid(level->logit[i * classes + k]));
    }
    int64_t *best = score ? best_of(score, level->n, c->candidates, &count) : NULL;
    bool done = best != NULL;
    for (int64_t j = 0; done && j < count; j++) {
        const int64_t i = best[j];
        const tp_corners box = clip(c, decode(c, level->anchor[i], level->offset + 4 * i));
        for (int64_t k = 0; done && k < classes; k++) {
            const double s = sigmoid(level->logit[i * classes + k]);
            if (s > c->score)
                done = add(p, (tp_found){ .box = box, .score = s, .category = k, .row = first + i },
                           k);
        }
    }
    free(best);
    free(score);
    return done;
}

int64_t tp_select_retinanet(const tp_select_cfg *c, const tp_level *level, int levels,
                            int64_t classes, tp_found *out)
{
    if (!c) return 0;
    pool p = { 0 };
    int64_t first = 0;
    bool done = true;
    for (int k = 0; done && k < levels; first += level[k++].n)
        done = c->profile == TP_MMDETECTION ? best_anchors(&p, c, &level[k], classes, first)
                                            : best_pairs(&p, c, &level[k], classes, first);
    const int64_t n = done ? finish(c, &p, out) : -1;
    release(&p);
    return n;
}

/* ---- box heads ---- */

/* Computes probabilities from a row of logits; false: not finite. Avoids fmax, which gcc 12 fails
 * to compile for ARM64 here. */
static bool softmax(const float *logit, int64_t n, double *out)
{
    float largest = logit[0];
    double sum = 0.0;
    for (int64_t k = 1; k < n; k++)
        if (logit[k] > largest) largest = logit[k];
    for (int64_t k = 0; k < n; k++) sum += out[k] = exp((double)logit[k] - largest);
    for (int64_t k = 0; k < n; k++) out[k] /= sum;
    return isfinite(sum);
}

/* Adds a proposal's categories above the score, unless a box is not finite. */
static bool add_row(pool *p, const tp_select_cfg *c, tp_corners proposal, const double *score,
                    const float *offset, int64_t classes, int64_t row)
{
    const int64_t boxes = c->one_box ? 1 : classes;
    for (int64_t k = 0; k < boxes; k++)
        if (!is_finite(decode(c, proposal, offset + 4 * k))) return true;
    for (int64_t k = 0; k < classes; k++) {
        if (!(score[k] > c->score)) continue;
        const tp_corners box = clip(c, decode(c, proposal, offset + (c->one_box ? 0 : 4 * k)));
        if (!add(p, (tp_found){ .box = box, .score = score[k], .category = k, .row = row }, k))
            return false;
    }
    return true;
}

int64_t tp_select_boxes(const tp_select_cfg *c, const tp_corners *proposal, const float *logit,
                        const float *offset, int64_t n, int64_t classes, tp_found *out)
{
    if (!c) return 0;
    pool p = { 0 };
    double *score = malloc(((size_t)classes + 1) * sizeof *score);
    bool done = score != NULL;
    const int64_t row = c->one_box ? 4 : 4 * classes;
    for (int64_t i = 0; done && i < n; i++)
        if (softmax(logit + i * (classes + 1), classes + 1, score))
            done = add_row(&p, c, proposal[i], score, offset + i * row, classes, i);
    const int64_t count = done ? finish(c, &p, out) : -1;
    free(score);
    release(&p);
    return count;
}

/* ---- after selection ---- */

int64_t tp_found_to_original(tp_found *found, int64_t n, const int64_t resized[2],
                             const int64_t original[2])
{
    if (!found) return 0;
    const double y = (double)original[0] / (double)resized[0],
                 x = (double)original[1] / (double)resized[1];
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        tp_found f = found[i];
        f.box = tp_corners_clip(tp_corners_scale(f.box, x, y), (double)original[0],
                                (double)original[1]);
        if (tp_corners_exceed(f.box, 0.0)) found[kept++] = f;
    }
    return kept;
}

int tp_region_level(tp_corners region, double canonical, int level, int first, int last,
                    tp_detection_profile profile)
{
    const double side = sqrt(tp_corners_area(region));
    const double k = profile == TP_MMDETECTION
                         ? floor(log2(side / (canonical / 4.0) + 1e-6)) + level - 2
                         : floor(level + log2(side / canonical + 1e-8));
    return !(k >= first) ? first : k > last ? last : (int)k;
}

/* ---- detections in the original image ---- */

void tp_detected_free(tp_detected *d)
{
    if (!d) return;
    free(d->found);
    free(d->mask);
    *d = (tp_detected){ 0 };
}

void tp_detected_to_original(tp_detected *d, const int64_t resized[2], const int64_t original[2])
{
    if (!d) return;
    const size_t mask = (size_t)(d->side * d->side);
    int64_t kept = 0;
    for (int64_t i = 0; i < d->n; i++) {
        tp_found f = d->found[i];
        if (!tp_found_to_original(&f, 1, resized, original)) continue;
        d->found[kept] = f;
        if (d->mask && kept < i)
            memcpy(d->mask + (size_t)kept * mask, d->mask + (size_t)i * mask,
                   mask * sizeof *d->mask);
        kept++;
    }
    d->n = kept;
}
