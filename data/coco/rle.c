/* rle.c - run-length encoded masks: pixels, compressed texts, unions and intersections.
 *
 * The compressed text holds run i as its difference from run i - 2 (from i = 3 on), in groups of
 * five bits, least significant first. Bit 5 of a character means that another group follows; 48 is
 * added to each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/rle.h>

#include "rle.h"

enum { GROUP = 5, FIRST = 48, MORE = 32, SIGN = 16, GROUPS = 8 };

void tp_rle_free(tp_rle *r)
{
    if (!r) return;
    free(r->run);
    *r = (tp_rle){ 0 };
}

bool tp__rle_new(tp_rle *r, int64_t height, int64_t width, int64_t runs)
{
    *r = (tp_rle){ 0 };
    if (height < 1 || width < 1 || height > TP_RLE_PIXELS / width || runs < 1) return false;
    if (runs > (int64_t)TP_RLE_PIXELS * 2) return false;
    r->run = malloc((size_t)runs * sizeof *r->run);
    if (!r->run) return false;
    r->height = height;
    r->width = width;
    r->runs = runs;
    return true;
}

/* Frees the memory behind the last run. */
static void trim(tp_rle *r)
{
    if (r->runs < 1) return;
    uint32_t *less = realloc(r->run, (size_t)r->runs * sizeof *less);
    if (less) r->run = less;
}

/* ---- pixels ---- */

bool tp_rle_from_pixels(tp_rle *r, const uint8_t *pixels, int64_t height, int64_t width)
{
    if (!r) return false;
    bool value = false;
    int64_t runs = 1;
    *r = (tp_rle){ 0 };
    if (height < 1 || width < 1) return false;
    for (int64_t x = 0; x < width; x++)
        for (int64_t y = 0; y < height; y++)
            if ((pixels[y * width + x] != 0) != value) {
                value = !value;
                runs++;
            }
    if (!tp__rle_new(r, height, width, runs)) return false;
    uint32_t *run = r->run, length = 0;
    value = false;
    for (int64_t x = 0; x < width; x++)
        for (int64_t y = 0; y < height; y++, length++)
            if ((pixels[y * width + x] != 0) != value) {
                *run++ = length;
                length = 0;
                value = !value;
            }
    *run = length;
    return true;
}

void tp_rle_pixels(const tp_rle *r, uint8_t *pixels)
{
    if (!r) return;
    int64_t y = 0, x = 0;
    for (int64_t i = 0; i < r->runs; i++)
        for (uint32_t k = 0; k < r->run[i]; k++) {
            pixels[y * r->width + x] = (uint8_t)(i % 2);
            if (++y == r->height) {
                y = 0;
                x++;
            }
        }
}

/* ---- run lengths and compressed texts ---- */

static bool refuse(tp_rle *r, const char *reason, char *why, size_t size)
{
    tp_rle_free(r);
    if (size) snprintf(why, size, "%s", reason);
    return false;
}

/* Begins a mask from a file, of at most `runs` runs. */
static bool begin(tp_rle *r, int64_t runs, int64_t height, int64_t width, char *why, size_t size)
{
    if (tp__rle_new(r, height, width, runs)) return true;
    if (size && (height < 1 || width < 1 || height > TP_RLE_PIXELS / width))
        snprintf(why, size, "a mask of %lld x %lld pixels is not possible", (long long)height,
                 (long long)width);
    else if (size)
        snprintf(why, size,
                 runs < 1 ? "the mask has no runs" : "out of memory for the runs of a mask");
    return false;
}

/* Checks that the runs fill the mask. */
static bool finish(tp_rle *r, int64_t pixels, char *why, size_t size)
{
    const int64_t all = r->height * r->width;
    if (pixels == all) return true;
    if (size)
        snprintf(why, size, "the runs have %lld pixels, but the mask %lld x %lld",
                 (long long)pixels, (long long)r->height, (long long)r->width);
    tp_rle_free(r);
    return false;
}

bool tp_rle_from_counts(tp_rle *r, const int64_t *count, int64_t n, int64_t height, int64_t width,
                        char *why, size_t size)
{
    if (!r) {
        if (why) snprintf(why, size, "rle_from_counts: NULL was given in place of a mask");
        return false;
    }
    int64_t pixels = 0;
    if (!begin(r, n, height, width, why, size)) return false;
    for (int64_t i = 0; i < n; i++) {
        if (count[i] < 0 || count[i] > TP_RLE_PIXELS)
            return refuse(r, "a run has an impossible length", why, size);
        r->run[i] = (uint32_t)count[i];
        pixels += count[i];
    }
    return finish(r, pixels, why, size);
}

/* Reads a number and advances *at; false if the text ends within it or has another character. */
static bool read_number(const char **at, const char *end, int64_t *x)
{
    *x = 0;
    for (int k = 0; *at < end && k < GROUPS; k++) {
        const int c = (unsigned char)*(*at)++ - FIRST;
        if (c < 0 || c >= 2 * MORE) return false;
        *x |= (int64_t)(c & (MORE - 1)) << (GROUP * k);
        if (c & MORE) continue;
        if (c & SIGN) *x -= (int64_t)1 << (GROUP * (k + 1));
        return true;
    }
    return false;
}

bool tp_rle_from_string(tp_rle *r, const char *text, size_t n, int64_t height, int64_t width,
                        char *why, size_t size)
{
    if (!r) {
        if (why) snprintf(why, size, "rle_from_string: NULL was given in place of a mask");
        return false;
    }
    const char *at = text, *end = text + n;
    int64_t pixels = 0, x, i = 0;
    if (!begin(r, n < INT32_MAX ? (int64_t)n : INT32_MAX, height, width, why, size)) return false;
    for (; at < end; i++) {
        if (i == r->runs || !read_number(&at, end, &x))
            return refuse(r, "the text is not a compressed mask", why, size);
        if (i > 2) x += r->run[i - 2];
        if (x < 0 || x > TP_RLE_PIXELS)
            return refuse(r, "a run has an impossible length", why, size);
        r->run[i] = (uint32_t)x;
        pixels += x;
    }
    r->runs = i;
    trim(r);
    return finish(r, pixels, why, size);
}

size_t tp_rle_string(const tp_rle *r, char *text, size_t size)
{
    if (!r) return 0;
    size_t n = 0;
    for (int64_t i = 0; i < r->runs; i++) {
        int64_t x = (int64_t)r->run[i] - (i > 2 ? (int64_t)r->run[i - 2] : 0);
        for (bool more = true; more; n++) {
            const int c = (int)((uint64_t)x & (MORE - 1));
            x = (x - c) / MORE; /* exact: rounds down, like an arithmetic shift */
            more = c & SIGN ? x != -1 : x != 0;
            if (n + 1 < size) text[n] = (char)(FIRST + (c | (more ? MORE : 0)));
        }
    }
    if (size) text[n < size ? n : size - 1] = '\0';
    return n;
}

/* ---- two masks, run by run ---- */

/* A position in a mask: the rest of the current run, and its value. */
typedef struct place {
    const uint32_t *next, *end;
    uint32_t left;
    bool value;
} place;

static place first_of(const tp_rle *r)
{
    return (place){ .next = r->run + 1, .end = r->run + r->runs, .left = r->run[0] };
}

static bool at_end(const place *p)
{
    return p->left == 0 && p->next == p->end;
}

static void advance(place *p, uint32_t n)
{
    p->left -= n;
    if (p->left || p->next == p->end) return;
    p->left = *p->next++;
    p->value = !p->value;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Counts the pixels in both masks and in either. */
static void overlap(const tp_rle *x, const tp_rle *y, int64_t *both, int64_t *any)
{
    place a = first_of(x), b = first_of(y);
    *both = *any = 0;
    while (!at_end(&a) || !at_end(&b)) {
        const uint32_t n = smaller(a.left, b.left);
        if (a.value || b.value) *any += n;
        if (a.value && b.value) *both += n;
        advance(&a, n);
        advance(&b, n);
    }
}

static bool merge_two(tp_rle *r, const tp_rle *x, const tp_rle *y, bool intersect)
{
    place a = first_of(x), b = first_of(y);
    bool value = false, end = false;
    uint32_t length = 0;
    int64_t runs = 0;
    if (!tp__rle_new(r, x->height, x->width, x->runs + y->runs + 1)) return false;
    while (!end) {
        const uint32_t n = smaller(a.left, b.left);
        const bool before = value;
        length += n;
        advance(&a, n);
        advance(&b, n);
        end = at_end(&a) && at_end(&b);
        value = intersect ? a.value && b.value : a.value || b.value;
        if (value != before || end) {
            r->run[runs++] = length;
            length = 0;
        }
    }
    r->runs = runs;
    return true;
}

static bool copy(tp_rle *to, const tp_rle *from)
{
    if (!tp__rle_new(to, from->height, from->width, from->runs)) return false;
    memcpy(to->run, from->run, (size_t)from->runs * sizeof *to->run);
    return true;
}

bool tp_rle_merge(tp_rle *r, const tp_rle *masks, int64_t n, bool intersect)
{
    if (!r) return false;
    tp_rle all, more;
    *r = (tp_rle){ 0 };
    for (int64_t i = 0; i < n; i++)
        if (masks[i].runs < 1 || masks[i].height != masks[0].height ||
            masks[i].width != masks[0].width)
            return false;
    if (n < 1 || !copy(&all, &masks[0])) return false;
    for (int64_t i = 1; i < n; i++) {
        const bool done = merge_two(&more, &all, &masks[i], intersect);
        tp_rle_free(&all);
        if (!done) return false;
        all = more;
    }
    trim(&all);
    *r = all;
    return true;
}

/* ---- measuring ---- */

int64_t tp_rle_area(const tp_rle *r)
{
    if (!r) return 0;
    int64_t area = 0;
    for (int64_t i = 1; i < r->runs; i += 2) area += r->run[i];
    return area;
}

/* A run that reaches into another column makes the box span all rows. */
void tp_rle_box(const tp_rle *r, double box[4])
{
    static const tp_rle none;
    if (!box) return;
    if (!r) r = &none;
    int64_t at = 0, x0 = r->width, x1 = 0, y0 = r->height, y1 = 0;
    for (int64_t i = 0; i + 1 < r->runs; i += 2) {
        const int64_t from = at + r->run[i], to = from + r->run[i + 1] - 1;
        at = to + 1;
        if (to < from) continue;
        const int64_t a = from / r->height, b = to / r->height;
        const int64_t top = a < b ? 0 : from % r->height;
        const int64_t bottom = a < b ? r->height - 1 : to % r->height;
        if (a < x0) x0 = a;
        if (b > x1) x1 = b;
        if (top < y0) y0 = top;
        if (bottom > y1) y1 = bottom;
    }
    const bool any = x0 <= x1 && x0 < r->width;
    box[0] = any ? (double)x0 : 0.0;
    box[1] = any ? (double)y0 : 0.0;
    box[2] = any ? (double)(x1 - x0 + 1) : 0.0;
    box[3] = any ? (double)(y1 - y0 + 1) : 0.0;
}

static double iou_of(const double d[4], const double g[4], bool crowd)
{
    const double right = d[2] + d[0] < g[2] + g[0] ? d[2] + d[0] : g[2] + g[0];
    const double bottom = d[3] + d[1] < g[3] + g[1] ? d[3] + d[1] : g[3] + g[1];
    const double w = right - (d[0] > g[0] ? d[0] : g[0]);
    const double h = bottom - (d[1] > g[1] ? d[1] : g[1]);
    if (w <= 0.0 || h <= 0.0) return 0.0;
    const double both = w * h, own = d[2] * d[3];
    return both / (crowd ? own : own + g[2] * g[3] - both);
}

void tp_box_iou_xywh(const double (*dt)[4], int64_t n, const double (*gt)[4], int64_t m,
                     const bool *crowd, double *iou)
{
    if (!dt || !gt || !iou) return;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) iou[i * m + j] = iou_of(dt[i], gt[j], crowd && crowd[j]);
}

double tp__rle_iou_of(const tp_rle *dt, const double dt_box[4], const tp_rle *gt,
                      const double gt_box[4], bool crowd)
{
    int64_t both, any;
    if (!(iou_of(dt_box, gt_box, crowd) > 0.0)) return 0.0;
    if (dt->height != gt->height || dt->width != gt->width) return -1.0;
    overlap(dt, gt, &both, &any);
    if (both == 0) return 0.0;
    return (double)both / (double)(crowd ? tp_rle_area(dt) : any);
}

void tp_rle_iou(const tp_rle *dt, int64_t n, const tp_rle *gt, int64_t m, const bool *crowd,
                double *iou)
{
    if (!dt) return;
    double d[4], g[4];
    for (int64_t i = 0; i < n; i++) {
        tp_rle_box(&dt[i], d);
        for (int64_t j = 0; j < m; j++) {
            tp_rle_box(&gt[j], g);
            iou[i * m + j] = tp__rle_iou_of(&dt[i], d, &gt[j], g, crowd && crowd[j]);
        }
    }
}
