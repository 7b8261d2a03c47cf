/* test_sets.c - the classes of ImageNet-1K in other test sets, scores of predictions on these sets,
 * and labels of images with several classes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/file.h>
#include <tapegrad/test_sets.h>

#include "load.h"

/* ---- the classes of test sets ---- */

enum { CLASSES = TP_IMAGENET_CLASSES };

static const char in_a[CLASSES + 1] =
    "......x....x.x.x.x....xx...x..x......x.x..x....x..x......x............xx....x..x"
    ".........xx...x.xx.x.....x.xx.x..x..........xx....x.x..........xx.....xx........"
    "...............................................x..........................xx...."
    "..............x......................x.....x...x...x...x..x..x....xxxxxx.xxx.x.x"
    "...xx.xx..x...xxx..........x.............x.x........x.....x.......x..........x.."
    "xxx.x..x...x....xx..x....x..x.x......xx......x..........xx...xx.......x.x......."
    "...x..x.x...x...x.................x.x...........x.x........x..xx.....x..x....x.."
    ".xx......x..xx.x...x.........x................xx.x....x...........xx............"
    "xxxx..............x.........x........x....x.x..x.............x..x..............x"
    "................x.........x..x..x.....x....x.x..x....xx.x..xx.....x.....x....x.."
    "..xxx........x.x....x..x.......x.x.x...x.....x.x..x........x..x.......x........x"
    "x.......x.x......x..x......x.....x..........x.......xxx..x.....x.x.x...x..x.xx.x"
    "...........xx.......xx..x.xxx...........";
static const char in_r[CLASSES + 1] =
    ".xx.x.x.xx.x.x........xx..x..x.x.......x.......x...............x.......x....x..x"
    "....x.....x...x.xx.xx....x.x.....x........x..x....x.x...........xx.xx.xx...x...."
    "xxxx.......xx.....x........x.......x...x...x...xx..........x...........xx.xx...."
    "..x..x.x..xx..x....xx..x.x.x.x......xx...x......xx.xxx..x..x.x......xxxx..xx...x"
    "...x...x..x...xx.xx.xx..x..x.....x.x.....xx..xxxx...x...............x.x..x...x.."
    ".x.....x.....xx..........x..x.x....x.x...x.....xx........x....xx.....xxxx...x..."
    "...x...x...........................x..............................x........x..x."
    "..........x........x...x...x.....xx.x............x...x...x...x.......x.......x.."
    ".................xx..........................................x...............x.."
    "....x......................................x....x.....x.x..xx......x............"
    ".....x......x..x....x...x........x.............x....x.............x........x...."
    "...x.....x.....x...........x....................x..xxxx.xx.....x.x.xxx.x.xx..x.."
    "...x.x.x............xx.x....x...........";
static const char in_9[CLASSES + 1] =
    "8888888111111111111111111........333333333333333333333333333333333333..........."
    ".......11111111111111..........................11111111111111111111....000000000"
    "00000000000..0000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000444444444444.....4444444444444455555555555555555555"
    "5555555.............................4444444..77777777777777777777..44888888888.."
    ".66....22...........6.......2...6...2.......2.......................2..........."
    "......6.......6................2.6...........................6....62.......2..6."
    ".2...26..2...2...6.6......2......66........2.....2..2..............2............"
    ".66.............2....2...2....22...2.......66..6..2........6.....2...........2.."
    "..............2................2.....2..................6..............2........"
    "..22.............2..2.6......2.................2................2.22..2....6...."
    "26.......6......................................................................"
    "........................................";

/* ---- labels ---- */

int tp_test_set_labels(tp_test_set set)
{
    return set == TP_TEST_ALL ? CLASSES : set == TP_TEST_9 ? 9 : 200;
}

int tp_test_set_label(tp_test_set set, int imagenet)
{
    const char *in = set == TP_TEST_A ? in_a : in_r;
    int label = 0;
    if (imagenet < 0 || imagenet >= CLASSES) return -1;
    if (set == TP_TEST_ALL) return imagenet;
    if (set == TP_TEST_9) return in_9[imagenet] == '.' ? -1 : in_9[imagenet] - '0';
    if (in[imagenet] != 'x') return -1;
    for (int c = 0; c < imagenet; c++) label += in[c] == 'x';
    return label;
}

/* Returns the class with the largest logit, the first of equals; if `in`, among its classes. */
static int likeliest(const float *logits, const char *in)
{
    int best = -1;
    for (int c = 0; c < CLASSES; c++)
        if ((!in || in[c] == 'x') && (best < 0 || logits[c] > logits[best])) best = c;
    return best;
}

int tp_test_set_predict(tp_test_set set, const float *logits)
{
    if (!logits) return 0;
    const char *in = set == TP_TEST_A ? in_a : set == TP_TEST_R ? in_r : NULL;
    return tp_test_set_label(set, likeliest(logits, in));
}

bool tp_in_top(const float *logits, int64_t classes, int k, const int64_t *labels, int n)
{
    if (!logits) return false;
    for (int i = 0; i < n; i++) {
        const int64_t own = labels[i];
        int64_t before = 0;
        if (own < 0 || own >= classes) continue;
        for (int64_t c = 0; c < classes; c++)
            before += logits[c] > logits[own] || (logits[c] == logits[own] && c < own);
        if (before < k) return true;
    }
    return false;
}

/* ---- ImageNet-C ---- */

/* AlexNet's error, averaged over the severities. */
static const struct {
    const char *name;
    double alexnet;
} corruptions[TP_CORRUPTIONS] = {
    { "gaussian_noise", 0.886428 },
    { "shot_noise", 0.894468 },
    { "impulse_noise", 0.922640 },
    { "defocus_blur", 0.819880 },
    { "glass_blur", 0.826268 },
    { "motion_blur", 0.785948 },
    { "zoom_blur", 0.798360 },
    { "snow", 0.866816 },
    { "frost", 0.826572 },
    { "fog", 0.819324 },
    { "brightness", 0.564592 },
    { "contrast", 0.853204 },
    { "elastic_transform", 0.646056 },
    { "pixelate", 0.717840 },
    { "jpeg_compression", 0.606500 },
};

const char *tp_corruption_name(int i)
{
    return i >= 0 && i < TP_CORRUPTIONS ? corruptions[i].name : NULL;
}

double tp_corruption_errors(const double error[TP_CORRUPTIONS][TP_SEVERITIES],
                            double relative[TP_CORRUPTIONS])
{
    if (!relative) return 0;
    double all = 0.0;
    for (int i = 0; i < TP_CORRUPTIONS; i++) {
        double sum = 0.0;
        for (int s = 0; s < TP_SEVERITIES; s++) sum += error[i][s];
        relative[i] = sum / (double)TP_SEVERITIES / corruptions[i].alexnet;
        all += relative[i];
    }
    return all / (double)TP_CORRUPTIONS;
}

/* ---- labels of several classes ---- */

/* A JSON array of arrays of class numbers holds the labels of images that may have several classes
 * or none. Anything else is refused, with the offset of the unexpected byte. */
enum { MOST_BYTES = 1 << 28 };

typedef struct reader {
    const char *name, *text;
    size_t at, n;
    int64_t classes, labels;
    size_t room, label_room;
    tp_label_lists *l;
} reader;

static bool fail(reader *r, const char *wanted)
{
    if (r->at < r->n)
        snprintf(r->l->why, sizeof r->l->why, "%.300s, byte %lld: %s is wanted, not '%.1s'",
                 r->name, (long long)r->at, wanted,
                 (unsigned char)r->text[r->at] - 32u < 95u ? r->text + r->at : "?");
    else
        snprintf(r->l->why, sizeof r->l->why, "%.300s ends at byte %lld: %s is wanted", r->name,
                 (long long)r->at, wanted);
    return false;
}

static void skip_blanks(reader *r)
{
    while (r->at < r->n && r->text[r->at] && strchr(" \t\r\n", r->text[r->at])) r->at++;
}

/* Skips white space and takes the byte c if it is next. */
static bool take(reader *r, char c)
{
    skip_blanks(r);
    if (r->at == r->n || r->text[r->at] != c) return false;
    r->at++;
    return true;
}

/* Makes room for one more value. */
static bool grow(reader *r, int64_t **at, int64_t used, size_t *room)
{
    const bool fits = tp_reserve(at, room, (size_t)used, 1, sizeof **at);
    if (!fits) snprintf(r->l->why, sizeof r->l->why, "%.300s: out of memory", r->name);
    return fits;
}

static bool read_label(reader *r)
{
    int64_t x = 0;
    const size_t from = r->at;
    for (; r->at < r->n && r->at - from < 10; r->at++) {
        const char c = r->text[r->at];
        if (c < '0' || c > '9') break;
        x = 10 * x + (c - '0');
    }
    if (r->at == from) return fail(r, "a class number");
    if (x >= r->classes) {
        snprintf(r->l->why, sizeof r->l->why,
                 "%.300s, byte %lld: image %lld has the class %lld; there are %lld", r->name,
                 (long long)from, (long long)r->l->count, (long long)x, (long long)r->classes);
        return false;
    }
    if (!grow(r, &r->l->label, r->labels, &r->label_room)) return false;
    r->l->label[r->labels++] = x;
    return true;
}

/* Reads the numbers after a '[', and the ']'. */
static bool read_list(reader *r)
{
    if (take(r, ']')) return true;
    do {
        skip_blanks(r);
        if (!read_label(r)) return false;
    } while (take(r, ','));
    return take(r, ']') || fail(r, "',' or ']'");
}

static bool read_lists(reader *r)
{
    tp_label_lists *l = r->l;
    if (!take(r, '[')) return fail(r, "'[', the start of an array of arrays");
    bool more = !take(r, ']');
    while (more) {
        if (!take(r, '[')) return fail(r, "'[', the start of an image's classes");
        if (!read_list(r) || !grow(r, &l->from, l->count + 1, &r->room)) return false;
        l->from[++l->count] = r->labels;
        more = take(r, ',');
        if (!more && !take(r, ']')) return fail(r, "',' or ']'");
    }
    skip_blanks(r);
    return r->at == r->n || fail(r, "the end of the file");
}

bool tp_label_lists_parse(tp_label_lists *l, const char *name, const char *text, size_t n,
                          int64_t classes)
{
    if (!l) return false;
    reader r = { .name = name, .text = text, .n = n, .classes = classes, .l = l };
    *l = (tp_label_lists){ 0 };
    if (grow(&r, &l->from, 0, &r.room)) l->from[0] = 0;
    const bool done = l->from && read_lists(&r);
    if (!done) l->count = 0;
    return done;
}

bool tp_label_lists_read(tp_label_lists *l, const char *path, int64_t classes)
{
    if (!l) return false;
    tp_blob b = { 0 };
    char why[300];
    bool done = tp__blob_read(&b, path, MOST_BYTES, why, sizeof why);
    const char *text = (const char *)b.bytes;
    size_t n = b.size;
    *l = (tp_label_lists){ 0 };
    done = done && (n == 0 || tp_skip_bom(&text, &n, why, sizeof why));
    if (done)
        done = tp_label_lists_parse(l, path, text, n, classes);
    else
        snprintf(l->why, sizeof l->why, "%.300s: %.200s", path, why);
    tp__blob_free(&b);
    return done;
}

void tp_label_lists_free(tp_label_lists *l)
{
    if (!l) return;
    free(l->from);
    free(l->label);
    *l = (tp_label_lists){ 0 };
}
