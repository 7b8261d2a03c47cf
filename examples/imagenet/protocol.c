/* protocol.c - scores ImageNet's other validation sets by their own rules and maps a model's
 * classes to ImageNet-1K's. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/test_sets.h>
#include <unistd.h>

#include "names/class_names.h"
#include "protocol.h"
#include "score.h"

/* ---- classes ---- */

typedef struct protocol_classes {
    int64_t n;          /* the model's classes */
    class_words *words; /* [n] */
    int32_t *imagenet;  /* [n]: class k's number in ImageNet-1K, or -1 */
    int32_t of[1000];   /* the model's class for each of ImageNet's, or -1 */
    int64_t known;      /* how many of ImageNet's classes the model has */
} protocol_classes;

/* Finds the ImageNet-1K class with this wnid; the list is sorted. */
static int32_t find_wnid(const name_list *l, const char *wnid)
{
    char at[WNID_SIZE];
    int64_t lo = 0, hi = l->count - 1;
    while (lo <= hi) {
        const int64_t mid = (lo + hi) / 2;
        name_list_at(l, mid, at);
        const int order = strcmp(at, wnid);
        if (order == 0) return (int32_t)mid;
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid - 1;
    }
    return -1;
}

/* Fills c; false: out of memory. Free in either case. */
static bool protocol_classes_of(protocol_classes *c, const class_names *names, int64_t n)
{
    const name_list *l = name_list_find("imagenet");
    *c = (protocol_classes){ .n = n,
                             .words = malloc((size_t)n * sizeof *c->words),
                             .imagenet = malloc((size_t)n * sizeof *c->imagenet) };
    for (int i = 0; i < TP_IMAGENET_CLASSES; i++) c->of[i] = -1;
    for (int64_t k = 0; k < n && c->words && c->imagenet; k++) {
        c->words[k] = class_words_at(names, k);
        c->imagenet[k] = c->words[k].wnid[0] ? find_wnid(l, c->words[k].wnid) : -1;
        if (c->imagenet[k] < 0 || c->of[c->imagenet[k]] >= 0) continue;
        c->of[c->imagenet[k]] = (int32_t)k;
        c->known++;
    }
    return c->words && c->imagenet;
}

static void protocol_classes_free(protocol_classes *c)
{
    free(c->words);
    free(c->imagenet);
    *c = (protocol_classes){ 0 };
}

/* Does the model have exactly ImageNet's classes? */
static bool protocol_classes_whole(const protocol_classes *c)
{
    return c->n == TP_IMAGENET_CLASSES && c->known == TP_IMAGENET_CLASSES;
}

/* The model's class with a folder's wnid or name; -1: none. */
static int32_t protocol_class_named(const protocol_classes *c, const char *folder)
{
    for (int64_t k = 0; k < c->n; k++) {
        const class_words *w = &c->words[k];
        if (strcmp(w->wnid[0] ? w->wnid : w->name, folder) == 0) return (int32_t)k;
    }
    const char *words = food_words(folder); /* checkpoints store Food-101's folders */
    for (int64_t k = 0; k < c->n && words; k++)
        if (strcmp(c->words[k].name, words) == 0) return (int32_t)k;
    return -1;
}

/* ---- protocols ---- */

typedef struct measure {
    const protocol_opts *o;
    image_file *f;
    protocol_classes c;
    tp_label_lists real;
    protocol_result r;
    const tp_image_set *X; /* the open folder, its part, and progress */
    protocol_part *part;
    int32_t *label; /* of each class of X */
    bool *among;    /* [classes]: competitors in a and r */
    tp_ticker line;
} measure;

/* ---- rules ---- */

static int32_t likeliest(const measure *m, const float *logits, bool among_all)
{
    int32_t best = -1;
    for (int32_t k = 0; k < m->c.n; k++)
        if ((among_all || m->among[k]) && (best < 0 || logits[k] > logits[best])) best = k;
    return best;
}

/* The number in a file name ILSVRC2012_val_00000001.JPEG; 0: another name. */
static int64_t number_of(const char *path)
{
    static const char stem[] = "ILSVRC2012_val_";
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strncmp(name, stem, sizeof stem - 1) != 0) return 0;
    const char *digits = name + sizeof stem - 1;
    return strspn(digits, "0123456789") == 8 && digits[8] == '.' ? strtoll(digits, NULL, 10) : 0;
}

static void score_real(measure *m, int64_t image, const float *logits)
{
    char name[PATH_MAX];
    const tp_label_lists *l = &m->real;
    const int64_t i = number_of(tp_image_set_name(m->X, image, name, sizeof name)) - 1;
    bool top1 = false, top5 = false;
    if (l->from[i] == l->from[i + 1]) {
        m->part->unlabelled++;
        return;
    }
    for (int64_t at = l->from[i]; at < l->from[i + 1]; at++) {
        const int64_t label = m->c.of[l->label[at]];
        top1 = top1 || tp_in_top(logits, m->c.n, 1, &label, 1);
        top5 = top5 || tp_in_top(logits, m->c.n, 5, &label, 1);
    }
    m->part->images++;
    m->part->top1 += top1;
    m->part->top5 += top5;
}

/* Scores an image; logits [classes]. */
static void score_one(void *env, int64_t image, int32_t label, const float *logits)
{
    measure *m = env;
    switch (m->o->which) {
    case PROTOCOL_REAL: score_real(m, image, logits); break;
    case PROTOCOL_A:
    case PROTOCOL_R: m->part->top1 += likeliest(m, logits, false) == label; break;
    case PROTOCOL_IN9:
        m->part->top1 +=
            tp_test_set_label(TP_TEST_9, m->c.imagenet[likeliest(m, logits, true)]) == label;
        break;
    default: break; /* counted by score */
    }
}

/* ---- a folder ---- */

static bool no_label(measure *m, int k)
{
    const char *name = tp_image_set_class(m->X, k);
    switch (m->o->which) {
    case PROTOCOL_V2:
        return tp_trained_fail(&m->f->t,
                               "%s: the folder '%s' is not a class number from 0 to 999: "
                               "ImageNet-V2 has folders 0 to 999",
                               m->o->data, name);
    case PROTOCOL_IN9:
        return tp_trained_fail(&m->f->t,
                               "%s: the folder '%s' of %s is not a superclass of ImageNet-9: they "
                               "are called 00_dog to 08_fish",
                               m->o->data, name, m->part->name);
    case PROTOCOL_A:
    case PROTOCOL_R:
        if (protocol_class_named(&m->c, name) >= 0)
            return tp_trained_fail(&m->f->t,
                                   "%s: '%s' is not one of the 200 classes of ImageNet-%c: "
                                   "check that --protocol names the set of --data",
                                   m->o->data, name, m->o->which == PROTOCOL_A ? 'A' : 'R');
        break;
    default: break;
    }
    return tp_trained_fail(&m->f->t,
                           "%s: the model of %s has no class called '%s'; the folders must be "
                           "called as the model's classes, ImageNet's by their wnid (n01440764)",
                           m->o->data, m->f->t.path, name);
}

/* The label of a class of X; -1: none. */
static int32_t label_of(const measure *m, const char *folder)
{
    const size_t digits = strspn(folder, "0123456789"), n = strlen(folder);
    if (m->o->which == PROTOCOL_V2)
        return digits == n && n <= 3 && (n == 1 || folder[0] != '0') ? m->c.of[atoi(folder)] : -1;
    if (m->o->which == PROTOCOL_IN9)
        return digits == 2 && folder[2] == '_' && atoi(folder) < 9 ? atoi(folder) : -1;
    const int32_t label = protocol_class_named(&m->c, folder);
    const bool listed = m->o->which == PROTOCOL_A || m->o->which == PROTOCOL_R;
    if (label < 0 || !listed || !protocol_classes_whole(&m->c)) return label;
    const tp_test_set set = m->o->which == PROTOCOL_A ? TP_TEST_A : TP_TEST_R;
    return tp_test_set_label(set, m->c.imagenet[label]) >= 0 ? label : -1;
}

/* a, r: the published list; for other models, the folders. */
static void find_competitors(measure *m)
{
    const bool whole = protocol_classes_whole(&m->c);
    const tp_test_set set = m->o->which == PROTOCOL_A ? TP_TEST_A : TP_TEST_R;
    for (int64_t k = 0; k < m->c.n; k++)
        m->among[k] = whole && tp_test_set_label(set, m->c.imagenet[k]) >= 0;
    for (int k = 0; k < tp_image_set_classes(m->X); k++) m->among[m->label[k]] = true;
    for (int64_t k = 0; k < m->c.n; k++) m->r.classes += m->among[k];
}

/* ReaL labels files by number. */
static bool numbered(measure *m)
{
    char name[PATH_MAX];
    for (int64_t i = 0; i < tp_image_set_count(m->X); i++) {
        const int64_t number = number_of(tp_image_set_name(m->X, i, name, sizeof name));
        if (number < 1)
            return tp_trained_fail(
                &m->f->t,
                "%s: ReaL's labels are for files ILSVRC2012_val_NUMBER.JPEG: give the published "
                "names back",
                name);
        if (number > m->real.count)
            return tp_trained_fail(&m->f->t,
                                   "%s: there are labels for %lld images only: give the whole file "
                                   "with --labels",
                                   name, (long long)m->real.count);
    }
    return true;
}

static bool find_labels(measure *m)
{
    const int n = tp_image_set_classes(m->X);
    free(m->label);
    m->label = malloc((size_t)(n + 1) * sizeof *m->label);
    if (!m->label) return tp_trained_fail(&m->f->t, "out of memory");
    for (int k = 0; k < n; k++) {
        m->label[k] = label_of(m, tp_image_set_class(m->X, k));
        if (m->label[k] < 0) return no_label(m, k);
    }
    if (m->o->which == PROTOCOL_A || m->o->which == PROTOCOL_R) find_competitors(m);
    return m->o->which != PROTOCOL_REAL || numbered(m);
}

static bool tick(void *env, const score *v)
{
    measure *m = env;
    if (tp_ticker_due(&m->line))
        tp_ticker_draw(&m->line, v->count, "%s", m->part->name ? m->part->name : "");
    return !tp_stop_signal();
}

static void bad_image(void *env, const char *name, const char *why)
{
    eval_skipped(((measure *)env)->o->command, name, why);
}

static bool score_part(measure *m)
{
    const protocol_opts *o = m->o;
    const bool cropped = o->which == PROTOCOL_C || o->which == PROTOCOL_IN9;
    const tp_augment a = image_file_pipeline(m->f, o->crop_ratio > 0 ? o->crop_ratio
                                                   : cropped         ? 1
                                                                     : 0);
    score v;
    m->line = tp_ticker_start("images", tp_image_set_count(m->X));
    const bool done = eval_score(&v, m->f, m->X,
                                 &(score_opts){ .augment = &a,
                                                .batch = o->batch,
                                                .workers = o->workers,
                                                .strict = o->strict,
                                                .bad = bad_image,
                                                .go_on = tick,
                                                .label_of = m->label,
                                                .each = score_one,
                                                .env = m });
    m->r.seconds += tp_seconds() - m->line.began;
    tp_ticker_end(&m->line);
    protocol_part *p = m->part;
    p->skipped = v.skipped;
    if (o->which == PROTOCOL_REAL) {
        p->plain = v.top1;
        p->of_plain = v.count;
    } else
        p->images = v.count;
    if (o->which == PROTOCOL_V2 || o->which == PROTOCOL_C) {
        p->top1 = v.top1;
        p->top5 = v.top5;
    }
    if (tp_stop_signal()) *p = (protocol_part){ .name = p->name }; /* discards a partial result */
    score_free(&v);
    return done;
}

/* Measures one folder's images. */
static bool measure_folder(measure *m, const char *folder, protocol_part *part)
{
    const tp_layout layout = m->o->which == PROTOCOL_REAL ? TP_LAYOUT_IMAGENET : TP_LAYOUT_TEST;
    tp_image_set *X = tp_image_set_open(folder, layout, TP_VALID);
    bool done = tp_image_set_ok(X) || tp_trained_fail(&m->f->t, "%s", tp_image_set_why(X));
    if (done) eval_warn(m->o->command, tp_image_set_note(X));
    m->X = X;
    m->part = part;
    done = done && find_labels(m) && score_part(m);
    tp_image_set_close(X);
    return done;
}

/* ---- the sets ---- */

const char *protocol_corruption(int i)
{
    static const char *const more[] = { "speckle_noise", "gaussian_blur", "spatter", "saturate" };
    return i < TP_CORRUPTIONS ? tp_corruption_name(i) : more[i - TP_CORRUPTIONS];
}

const char *protocol_variation(int i)
{
    static const char *const names[PROTOCOL_VARIATIONS] = { "original",   "mixed_same",
                                                            "mixed_rand", "mixed_next",
                                                            "no_fg",      "only_bg_b",
                                                            "only_bg_t",  "only_fg" };
    return names[i];
}

/* *there: is it a folder? False on a file system error, which must not pass for a missing
 * folder. */
static bool look(measure *m, const char *path, bool *there)
{
    struct stat s;
    *there = stat(path, &s) == 0;
    if (!*there && errno != ENOENT && errno != ENOTDIR)
        return tp_trained_fail(&m->f->t, "%s cannot be accessed: %s", path, strerror(errno));
    *there = *there && S_ISDIR(s.st_mode);
    return true;
}

/* ImageNet-C: CORRUPTION/SEVERITY/WNID. */
static bool measure_corruptions(measure *m)
{
    char path[PATH_MAX];
    bool done = true, found = false, there;
    m->r.parts = PROTOCOL_PARTS;
    for (int i = 0; i < PROTOCOL_PARTS; i++) {
        const char *name = protocol_corruption(i / PROTOCOL_SEVERITIES);
        m->r.part[i].name = name;
        snprintf(path, sizeof path, "%s/%s/%d", m->o->data, name, i % PROTOCOL_SEVERITIES + 1);
        if (!done || tp_stop_signal()) continue;
        done = look(m, path, &there) && (!there || measure_folder(m, path, &m->r.part[i]));
        found = found || there;
    }
    return done && (found || tp_stop_signal() ||
                    tp_trained_fail(&m->f->t,
                                    "%s has no folders of ImageNet-C: gaussian_noise/1/WNID to "
                                    "jpeg_compression/5/WNID",
                                    m->o->data));
}

/* ImageNet-9: VARIATION/val/SUPERCLASS. */
static bool measure_variations(measure *m)
{
    char path[PATH_MAX];
    bool done = true, there;
    for (int i = 0; i < PROTOCOL_VARIATIONS && done && !tp_stop_signal(); i++) {
        snprintf(path, sizeof path, "%s/%s/val", m->o->data, protocol_variation(i));
        done = look(m, path, &there);
        if (!done || !there) continue;
        protocol_part *p = &m->r.part[m->r.parts++];
        p->name = protocol_variation(i);
        done = measure_folder(m, path, p);
    }
    return done && (m->r.parts > 0 || tp_stop_signal() ||
                    tp_trained_fail(&m->f->t,
                                    "%s has no folders of ImageNet-9: original/val/00_dog, "
                                    "mixed_same/val/00_dog, ...",
                                    m->o->data));
}

static bool measure_real(measure *m)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/real.json", m->o->data);
    return (tp_label_lists_read(&m->real, m->o->labels ? m->o->labels : path,
                                TP_IMAGENET_CLASSES) ||
            tp_trained_fail(&m->f->t, "%s%s", m->real.why,
                            m->o->labels || access(path, F_OK) == 0
                                ? ""
                                : ", or name the file with --labels")) &&
           measure_folder(m, m->o->data, &m->r.part[0]);
}

static bool measure_set(measure *m)
{
    static const char *const flags[] = { "", "real", "v2", "a", "r", "in9", "c" };
    const protocol which = m->o->which;
    bool there;
    const bool any_classes = which == PROTOCOL_A || which == PROTOCOL_R || which == PROTOCOL_C;
    m->r.which = which;
    m->r.parts = which == PROTOCOL_IN9 ? 0 : 1;
    m->r.imagenet = protocol_classes_whole(&m->c);
    if (!any_classes && !m->r.imagenet)
        return tp_trained_fail(&m->f->t,
                               "--protocol %s is for models of ImageNet's 1000 classes; that of %s "
                               "has %lld classes, %lld of them ImageNet's",
                               flags[which], m->f->t.path, (long long)m->c.n,
                               (long long)m->c.known);
    if (!look(m, m->o->data, &there)) return false;
    if (!there)
        return tp_trained_fail(&m->f->t,
                               "--data %s: there is no such folder; check the path, and unpack "
                               "archives first",
                               m->o->data);
    if (which == PROTOCOL_C) return measure_corruptions(m);
    if (which == PROTOCOL_IN9) return measure_variations(m);
    if (which == PROTOCOL_REAL) return measure_real(m);
    return measure_folder(m, m->o->data, &m->r.part[0]);
}

/* Was anything measured before a signal? */
static bool has_images(const protocol_result *r)
{
    for (int i = 0; i < r->parts; i++)
        if (r->part[i].images + r->part[i].unlabelled > 0) return true;
    return false;
}

bool protocol_run(const protocol_opts *o, image_file *f, const class_names *names)
{
    measure *m = calloc(1, sizeof *m);
    bool done = m && (m->among = calloc((size_t)f->cfg.classes, sizeof *m->among)) &&
                protocol_classes_of(&m->c, names, f->cfg.classes);
    if (!done) tp_trained_fail(&f->t, "out of memory");
    if (m) {
        m->o = o;
        m->f = f;
    }
    tp_catch_signals();
    done = done && measure_set(m);
    if (done && has_images(&m->r)) {
        if (!protocol_print(stdout, o->format, &m->r) && !ferror(stdout))
            done = tp_trained_fail(&f->t, "out of memory");
        done = tp_trained_printed(&f->t) && done;
    }
    if (m) {
        protocol_classes_free(&m->c);
        tp_label_lists_free(&m->real);
        free(m->label);
        free(m->among);
    }
    free(m);
    return done;
}
