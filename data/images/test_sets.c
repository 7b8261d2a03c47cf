/* test_sets.c - which classes of ImageNet-1K other test sets have, and how predictions score on them.
 *
 * A string has a character for each class, in ascending order of WordNet ids: x marks the 200 classes of
 * ImageNet-A and of ImageNet-R, a digit the superclass in ImageNet-9. */
#include <string.h>

#include <tapegrad/test_sets.h>

enum { CLASSES = TP_IMAGENET_CLASSES };

/* clang-format off */
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
/* clang-format on */

/* ---- labels ---- */

int tp_test_labels(tp_test_set set)
{
    return set == TP_TEST_ALL ? CLASSES : set == TP_TEST_9 ? 9 : 200;
}

int tp_test_label(tp_test_set set, int imagenet)
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

/* The class with the largest logit, the first of equals; among a set's classes if `in` is not NULL. */
static int likeliest(const float *logits, const char *in)
{
    int best = -1;
    for (int c = 0; c < CLASSES; c++)
        if ((!in || in[c] == 'x') && (best < 0 || logits[c] > logits[best])) best = c;
    return best;
}

int tp_test_predict(tp_test_set set, const float *logits)
{
    if (!logits) return 0;
    const char *in = set == TP_TEST_A ? in_a : set == TP_TEST_R ? in_r : NULL;
    return tp_test_label(set, likeliest(logits, in));
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

/* AlexNet's error, the mean over the severities. */
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
