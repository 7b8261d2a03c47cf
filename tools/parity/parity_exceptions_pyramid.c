/* parity_exceptions_pyramid.c - the exceptions of parity_exceptions.c for detection: padding, feature pyramids, regions
 * of maps. */
#include "parity_detection.h"
#include "parity_exceptions.h"

/* ---- padding ---- */

static int64_t up(int64_t n, int64_t unit)
{
    return unit > 0 ? tp_padded_side(n, unit) : n;
}

/* True if a batch with these largest sides has the same size after padding to multiples of both numbers. */
static bool same_multiple(const int64_t side[2], const char *from, const char *to)
{
    const int64_t a = strtoll(from, NULL, 10), b = strtoll(to, NULL, 10);
    return a >= 0 && b >= 0 && up(side[0], a) == up(side[0], b) && up(side[1], a) == up(side[1], b);
}

static bool image_same_padding(parity *p, const char *from, const char *to)
{
    int64_t side[2];
    par_view_size(p, number(p, "short_edge"), number(p, "max_size"), side);
    return same_multiple(side, from, to);
}

static bool batch_same_padding(parity *p, const char *from, const char *to)
{
    int64_t rows = 0, columns = 0, most[2] = { 0, 0 };
    const double *x = NULL;
    if (p->kind->large)
        par_sides(p, "image_hw", most);
    else
        x = par_nested(p, "image_hw", &rows, &columns);
    for (int64_t i = 0; i < rows * columns; i++)
        if ((int64_t)x[i] > most[i % 2]) most[i % 2] = (int64_t)x[i];
    return (p->kind->large || columns == 2) && same_multiple(most, from, to);
}

/* ---- feature pyramids ---- */

static bool no_convolution(parity *p, const char *from, const char *to)
{
    (void)from, (void)to;
    return is(p, "top_block_type", "maxpool");
}

static bool one_map(parity *p, const char *from, const char *to)
{
    int64_t maps;
    (void)from, (void)to;
    par_sizes(p, "strides", 1, &maps);
    return maps == 1;
}

/* ---- regions ---- */

/* True if every region of the case has the same level in both ways. */
static bool same_levels(parity *p, const double canonical[2], const int level[2])
{
    const int first = (int)number(p, "min_level"), last = (int)number(p, "max_level");
    const int64_t images = par_series(p, "input.boxes");
    bool same = canonical[0] > 0.0 && canonical[1] > 0.0;
    for (int64_t b = 0; b < images; b++) {
        int64_t n;
        const tp_corners *x = par_corners(p, par_name(p, "input.boxes%lld", (long long)b), &n);
        for (int64_t i = 0; x && i < n && same; i++)
            same = tp_region_level(x[i], canonical[0], level[0], first, last, TP_DETECTRON2) ==
                   tp_region_level(x[i], canonical[1], level[1], first, last, TP_DETECTRON2);
    }
    return same;
}

static bool same_level_of_sides(parity *p, const char *from, const char *to)
{
    const int level = (int)number(p, "canonical_level");
    return same_levels(p, (double[]){ strtod(from, NULL), strtod(to, NULL) },
                       (int[]){ level, level });
}

static bool same_level_of_numbers(parity *p, const char *from, const char *to)
{
    const char *side = par_text(p, "canonical_box_size");
    const double x = side ? strtod(side, NULL) : 224.0;
    return same_levels(p, (double[]){ x, x },
                       (int[]){ (int)strtol(from, NULL, 10), (int)strtol(to, NULL, 10) });
}

static bool both_adaptive(parity *p, const char *from, const char *to)
{
    (void)p;
    return are(from, to, "0", "-1");
}

/* True if no region is pooled from the maps whose scales differ. */
static bool idle_maps(parity *p, const char *from, const char *to)
{
    tp_shape s = { 0 };
    const int64_t *level = par_integers(p, "output.levels", &s);
    char *a, *b;
    for (int64_t k = 0;; k++, from = a + 1, to = b + 1) {
        const double x = strtod(from, &a), y = strtod(to, &b);
        for (int64_t i = 0; level && i < par_numel(s) && x != y; i++)
            if (level[i] == k) return false;
        if (*a != *b || a == from) return false;
        if (!*a) return level != NULL;
    }
}

#define KIND "detection."
/* clang-format off */
const par_exception par_pyramid_exceptions[] = {
    { KIND "preprocess", "size_divisibility", "the image has the same size after padding", image_same_padding },
    { KIND "maskrcnn*", "size_divisibility", "the batch has the same size after padding", batch_same_padding },
    { KIND "retinanet*", "size_divisibility", "the batch has the same size after padding", batch_same_padding },
    { KIND "*", "top_block_relu", "P6 is not a convolution", no_convolution },
    { KIND "*fpn", "fuse", "a single map is not added to another", one_map },
    { KIND "roi_align", "output_size", "one number means both sides", one_side },
    { KIND "roi_pooler", "output_size", "one number means both sides", one_side },
    { KIND "roi_*", "sampling_ratio", "without a positive number, samples follow from the size of a bin", both_adaptive },
    { KIND "maskrcnn*", "pooler_sampling_ratio", "without a positive number, samples follow from the size of a bin", both_adaptive },
    { KIND "roi_pooler", "scales", "no region is pooled from this map", idle_maps },
    { KIND "roi_pooler", "canonical_box_size", "every region keeps its level", same_level_of_sides },
    { KIND "roi_pooler", "canonical_level", "every region keeps its level", same_level_of_numbers },
    { NULL, NULL, NULL, NULL },
};
/* clang-format on */
