/* voc.c - reads folders of Pascal VOC, with an XML file for each image.
 *
 *     <annotation> <filename>000005.jpg</filename>
 *       <size> <width>500</width> <height>375</height> ... </size>
 *       <object> <name>chair</name> <difficult>0</difficult>
 *         <bndbox> <xmin>263</xmin> <ymin>211</ymin> <xmax>324</xmax> <ymax>339</ymax> </bndbox>
 *         ... </object> ...
 *
 * As in torchvision and detectron2, the annotation's own file names the image: <filename> may
 * predate a renaming or have no extension. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <tapegrad/file.h>

#include "coco.h"
#include "files.h"
#include "load.h"
#include "xml.h"

enum { NAME = 256, PATH = 2048, LARGEST = 1 << 24 };

/* ---- names ---- */

/* Names of one kind, each terminated by a zero. */
typedef struct names {
    tp_pool text, first; /* char, size_t */
    size_t sorted;       /* number of names that are sorted and distinct */
} names;

static bool add_name(names *n, const char *name)
{
    const size_t length = strlen(name) + 1, at = n->text.count;
    char *text = tp__pool_add(&n->text, length, 1);
    size_t *first = text ? tp__pool_add(&n->first, 1, sizeof *first) : NULL;
    if (!first) return false;
    *first = at;
    memcpy(text, name, length);
    return true;
}

static const char *name_at(const names *n, size_t i)
{
    return (const char *)n->text.items + ((const size_t *)n->first.items)[i];
}

static void release(names *n)
{
    free(n->text.items);
    free(n->first.items);
    *n = (names){ 0 };
}

/* Returns the length of a file's name without its extension. */
static size_t stem_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && dot > name ? (size_t)(dot - name) : strlen(name);
}

static int compare_stems(const char *a, size_t na, const char *b, size_t nb)
{
    const int order = memcmp(a, b, na < nb ? na : nb);
    return order ? order : (na > nb) - (na < nb);
}

static int by_stem(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    const int order = compare_stems(x, stem_of(x), y, stem_of(y));
    return order ? order : strcmp(x, y);
}

/* Sorts names and removes duplicates. */
static bool sort(names *n, int (*order)(const void *a, const void *b))
{
    names sorted = { 0 };
    const size_t count = n->first.count;
    const char **name = malloc((count + 1) * sizeof *name);
    bool done = name != NULL;
    for (size_t i = 0; done && i < count; i++) name[i] = name_at(n, i);
    if (done && count) qsort(name, count, sizeof *name, order);
    for (size_t i = 0; done && i < count; i++)
        if (i == 0 || strcmp(name[i], name[i - 1]) != 0) done = add_name(&sorted, name[i]);
    free(name);
    release(n);
    *n = sorted;
    n->sorted = n->first.count;
    return done;
}

/* Returns the first name with this stem in a list sorted by stems; the number of names if none. */
static size_t find_stem(const names *n, const char *stem, size_t length)
{
    size_t from = 0, to = n->first.count;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        const char *name = name_at(n, middle);
        if (compare_stems(name, stem_of(name), stem, length) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    if (from == n->first.count) return from;
    const char *name = name_at(n, from);
    return compare_stems(name, stem_of(name), stem, length) == 0 ? from : n->first.count;
}

/* ---- one file ---- */

typedef struct voc {
    tp_coco *X;
    const char *folder;
    char path[PATH]; /* of the current file */
    names files;     /* in Annotations, by stem */
    names pictures;  /* in JPEGImages, by stem */
    names classes;   /* sorted once all are known */
    bool collect;    /* read only the classes */
    int64_t image;   /* id of the image */
} voc;

static bool fail(voc *v, const tp_xml *x, const char *reason)
{
    tp__coco_fail(v->X, "%.800s: line %lld: %s", v->path, (long long)tp__line_of(x->bytes, x->at),
                  reason);
    return false;
}

/* The text of the last tag. */
static bool text_of(voc *v, tp_xml *x, char text[NAME])
{
    return tp__xml_text(x, text, NAME) || fail(v, x, x->why);
}

static bool number(voc *v, tp_xml *x, double *to)
{
    char text[NAME], *end;
    if (!text_of(v, x, text)) return false;
    *to = tp_number_read(text, &end);
    return (end > text && !*end && fabs(*to) < 1e9) || fail(v, x, "a number is expected");
}

/* Adds a class. Sorts them from time to time, so that repeated ones take no memory. */
static bool collect(voc *v, const tp_xml *x, const char *name)
{
    names *n = &v->classes;
    if (!add_name(n, name)) return fail(v, x, "out of memory");
    return n->first.count < 2 * n->sorted + 1000 || sort(n, tp__by_bytes) ||
           fail(v, x, "out of memory");
}

static int64_t class_of(const voc *v, const char *name)
{
    size_t from = 0, to = v->classes.first.count;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (strcmp(name_at(&v->classes, middle), name) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return (int64_t)from + 1;
}

/* Adds an object with these corners. */
static bool add_object(voc *v, const char *name, bool difficult, const double corner[4])
{
    tp_coco_raw *r = tp__coco_object(v->X);
    if (!r) return false;
    r->o.id = (int64_t)v->X->raws.count;
    r->o.image = v->image;
    r->o.ignore = difficult;
    r->category = class_of(v, name);
    r->o.box[0] = corner[0] - 1.0;
    r->o.box[1] = corner[1] - 1.0;
    r->o.box[2] = corner[2] - corner[0] + 1.0;
    r->o.box[3] = corner[3] - corner[1] + 1.0;
    r->o.area = r->o.box[2] * r->o.box[3];
    return true;
}

/* Reads up to </object>. */
static bool read_object(voc *v, tp_xml *x)
{
    static const char *const corners[] = { "annotation/object/bndbox/xmin",
                                           "annotation/object/bndbox/ymin",
                                           "annotation/object/bndbox/xmax",
                                           "annotation/object/bndbox/ymax" };
    char name[NAME] = "", difficult[NAME] = "";
    double corner[4];
    int seen = 0;
    while (tp__xml_next(x) && !(x->closing && tp__xml_is(x, "annotation/object"))) {
        if (x->closing) continue;
        if (tp__xml_is(x, "annotation/object/name") && !text_of(v, x, name)) return false;
        if (tp__xml_is(x, "annotation/object/difficult") && !text_of(v, x, difficult)) return false;
        for (int i = 0; i < 4; i++) {
            if (!tp__xml_is(x, corners[i])) continue;
            if (!number(v, x, &corner[i])) return false;
            seen |= 1 << i;
        }
    }
    if (x->why[0]) return fail(v, x, x->why);
    if (!name[0]) return fail(v, x, "<object> has no <name>");
    if (v->collect) return collect(v, x, name);
    if (seen != 15)
        return fail(v, x, "the <bndbox> of <object> lacks one of <xmin>, <ymin>, <xmax>, <ymax>");
    return add_object(v, name, strcmp(difficult, "1") == 0, corner);
}

/* Finds the image of an annotation: the file in JPEGImages with its stem, preferably .jpg. Without
 * one: the file that <filename> names, unless another annotation has that image. */
static void name_image(const voc *v, const char *stem, const char *given, char *file, size_t size)
{
    const size_t n = strlen(stem), first = find_stem(&v->pictures, stem, n);
    size_t best = first;
    snprintf(file, size, "%s.jpg", stem);
    for (size_t i = first; i < v->pictures.first.count; i++) {
        const char *name = name_at(&v->pictures, i);
        if (compare_stems(name, stem_of(name), stem, n) != 0) break;
        if (strcasecmp(name + n, ".jpg") == 0) best = i;
    }
    if (best < v->pictures.first.count)
        snprintf(file, size, "%s", name_at(&v->pictures, best));
    else if (given[0] && find_stem(&v->files, given, stem_of(given)) == v->files.first.count)
        snprintf(file, size, "%s", given);
}

static bool add_image(voc *v, const tp_xml *x, const char *stem, const char *given,
                      const double size[2])
{
    char file[2 * NAME];
    const bool known = size[0] != 0.0 || size[1] != 0.0;
    if (known && !(size[0] >= 1.0 && size[1] >= 1.0 && size[0] * size[1] <= TP_RLE_PIXELS))
        return fail(v, x, "<size> has an impossible <width> or <height>");
    name_image(v, stem, given, file, sizeof file);
    return tp__coco_image(v->X, v->image, (int64_t)size[0], (int64_t)size[1], file);
}

static bool read_xml(voc *v, tp_xml *x, const char *stem)
{
    char given[NAME] = "";
    double size[2] = { 0.0, 0.0 }; /* height, width */
    bool any = false;
    while (tp__xml_next(x)) {
        any |= tp__xml_is(x, "annotation");
        if (x->closing) continue;
        if (tp__xml_is(x, "annotation/filename") && !text_of(v, x, given)) return false;
        if (tp__xml_is(x, "annotation/size/height") && !number(v, x, &size[0])) return false;
        if (tp__xml_is(x, "annotation/size/width") && !number(v, x, &size[1])) return false;
        if (tp__xml_is(x, "annotation/object") && !read_object(v, x)) return false;
    }
    if (x->why[0]) return fail(v, x, x->why);
    if (!any) return fail(v, x, "there is no <annotation>");
    return v->collect || add_image(v, x, stem, given, size);
}

/* Reads a text file: its bytes after a UTF-8 byte order mark. */
static bool load_text(tp_coco *X, const char *path, tp_blob *b, const char **text, size_t *n)
{
    char why[512];
    bool done = tp__blob_read(b, path, LARGEST, why, sizeof why);
    *text = (const char *)b->bytes;
    *n = b->size;
    done = done && tp_skip_bom(text, n, why, sizeof why);
    if (!done) tp__coco_fail(X, "%.800s: %s", path, why);
    return done;
}

/* Reads the annotation with this name in a list, with or without extension. */
static bool read_file(voc *v, const char *name)
{
    tp_blob b = { 0 };
    tp_xml x = { 0 };
    size_t n;
    const size_t at = find_stem(&v->files, name, strlen(name));
    if (at < v->files.first.count)
        snprintf(v->path, PATH, "%.1500s/Annotations/%.300s", v->folder, name_at(&v->files, at));
    else
        snprintf(v->path, PATH, "%.1500s/Annotations/%.300s.xml", v->folder, name);
    bool done = load_text(v->X, v->path, &b, &x.bytes, &n);
    if (done) {
        x.at = x.bytes;
        x.end = x.bytes + n;
        done = read_xml(v, &x, name);
    }
    tp__blob_free(&b);
    return done;
}

/* ---- the folder ---- */

/* Lists the files in a folder, with this extension unless it is NULL. */
static bool list_folder(tp_coco *X, const char *path, const char *ending, names *n)
{
    struct dirent *e;
    DIR *d = opendir(path);
    bool done = d != NULL;
    if (!d && errno != ENOMEM)
        tp__coco_fail(X, "%.900s: cannot be listed (%s); a folder of Pascal VOC has its %s there",
                      path, strerror(errno), ending ? "annotations" : "images");
    while (done && (errno = 0, e = readdir(d))) {
        if (tp__companion(e->d_name) || e->d_name[0] == '.') continue;
        if (!ending || strcasecmp(e->d_name + stem_of(e->d_name), ending) == 0)
            done = add_name(n, e->d_name);
    }
    if (done && errno)
        tp__coco_fail(X, "%.900s: cannot be listed: %s; check the disk", path, strerror(errno));
    if (d) closedir(d);
    done = done && tp_coco_ok(X) && sort(n, by_stem);
    if (!done) tp__coco_fail(X, "%.900s: out of memory for its list of files", path);
    return done;
}

static bool list_files(voc *v)
{
    char path[PATH];
    struct stat st;
    snprintf(path, sizeof path, "%.1500s/Annotations", v->folder);
    if (!list_folder(v->X, path, ".xml", &v->files)) return false;
    for (size_t i = 1; i < v->files.first.count; i++) {
        const char *a = name_at(&v->files, i - 1), *b = name_at(&v->files, i);
        if (compare_stems(a, stem_of(a), b, stem_of(b)) != 0) continue;
        tp__coco_fail(v->X, "%.900s: %.200s and %.200s are annotations of one image", path, a, b);
        return false;
    }
    snprintf(path, sizeof path, "%.1500s/JPEGImages", v->folder);
    return stat(path, &st) != 0 || list_folder(v->X, path, NULL, &v->pictures);
}

/* Lists all annotations, without extensions. */
static bool all_names(voc *v, names *n)
{
    bool done = true;
    char stem[NAME];
    for (size_t i = 0; done && i < v->files.first.count; i++) {
        const char *name = name_at(&v->files, i);
        snprintf(stem, sizeof stem, "%.*s", (int)stem_of(name), name);
        done = add_name(n, stem);
    }
    if (!done) tp__coco_fail(v->X, "%.900s: out of memory for its list of files", v->folder);
    return done;
}

/* Reads the first word of each line of a part's list. */
static bool read_list(tp_coco *X, const char *path, names *n)
{
    char name[NAME];
    tp_blob b = { 0 };
    const char *at;
    size_t size;
    bool done = load_text(X, path, &b, &at, &size);
    const char *end = at + size;
    while (done && at < end) {
        size_t k = 0;
        while (at + k < end && !strchr(" \t\r\n", at[k])) k++;
        snprintf(name, sizeof name, "%.*s", k < NAME - 1 ? (int)k : NAME - 1, at);
        if (strchr(name, '/')) {
            tp__coco_fail(X, "%.900s: a name has a '/': '%.60s'", path, name);
            done = false;
        } else if (name[0] && !add_name(n, name)) {
            tp__coco_fail(X, "%.900s: out of memory for its names", path);
            done = false;
        }
        const char *next = memchr(at + k, '\n', (size_t)(end - at) - k);
        at = next ? next + 1 : end;
    }
    tp__blob_free(&b);
    return done;
}

/* Reads the list of the part, or takes all files if the folder has no lists. */
static bool names_of_part(voc *v, tp_part part, names *n)
{
    tp_coco *X = v->X;
    const char *folder = v->folder;
    static const char *const lists[][2] = { { "trainval", "train" },
                                            { "val", NULL },
                                            { "test", NULL } };
    char path[PATH];
    struct stat st;
    for (int i = 0; i < 2 && lists[part][i]; i++) {
        snprintf(path, sizeof path, "%.1500s/ImageSets/Main/%s.txt", folder, lists[part][i]);
        if (stat(path, &st) == 0) return read_list(X, path, n);
    }
    snprintf(path, sizeof path, "%.1500s/ImageSets", folder);
    if (stat(path, &st) != 0) return all_names(v, n);
    tp__coco_fail(X, "%.900s: has no Main/%s.txt", path, lists[part][0]);
    return false;
}

static bool read_all(voc *v, const names *n)
{
    bool done = true;
    for (size_t i = 0; done && i < n->first.count; i++) {
        v->image = (int64_t)i + 1;
        done = read_file(v, name_at(n, i));
    }
    return done;
}

tp_coco *tp_coco_voc(const char *folder, tp_part part)
{
    names all = { 0 }, of_part = { 0 };
    voc v = { .X = tp__coco_new(folder), .folder = folder, .collect = true };
    if (!tp_coco_ok(v.X)) return v.X;
    bool done = list_files(&v) && all_names(&v, &all) && read_all(&v, &all);
    if (done && !sort(&v.classes, tp__by_bytes))
        tp__coco_fail(v.X, "%.900s: out of memory for its classes", folder);
    done = done && names_of_part(&v, part, &of_part);
    for (size_t i = 0; i < v.classes.first.count; i++)
        done = done && tp__coco_category(v.X, (int64_t)i + 1, name_at(&v.classes, i));
    v.collect = false;
    if (done) read_all(&v, &of_part);
    tp__coco_finish(v.X, NULL);
    names *const lists[] = { &all, &of_part, &v.files, &v.pictures, &v.classes };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) release(lists[i]);
    return v.X;
}
