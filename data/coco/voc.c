/* voc.c - folders of Pascal VOC: an XML file for each image.
 *
 *     <annotation> <filename>000005.jpg</filename> <size> <width>500</width> <height>375</height> ... </size>
 *       <object> <name>chair</name> <difficult>0</difficult>
 *         <bndbox> <xmin>263</xmin> <ymin>211</ymin> <xmax>324</xmax> <ymax>339</ymax> </bndbox> ... </object> ...
 *
 * Tags are read in the order of the file; those inside a <part> of an object are not its own. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/file.h>

#include "coco.h"
#include "load.h"

enum { NAME = 256, PATH = 2048, LARGEST = 1 << 24, CLASSES = 10000 };

/* Names of one kind, each ending in a zero. */
typedef struct names {
    tp_pool text, first; /* char, size_t */
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
}

/* ---- XML ---- */

typedef struct xml {
    const char *bytes, *end, *at;
    char tag[32];        /* of the last tag, "" at the end */
    bool closing, empty; /* </tag>, <tag/>                  */
    char text[NAME];     /* between the tag and the next '<' */
} xml;

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* The end of the comment that begins here, or `end` if it has none; `at` if no comment begins. */
static const char *past_comment(const char *at, const char *end)
{
    if (end - at < 4 || memcmp(at, "<!--", 4) != 0) return at;
    for (at += 4; end - at >= 3; at++)
        if (memcmp(at, "-->", 3) == 0) return at + 3;
    return end;
}

/* The next '<' that begins no comment; NULL: there is none. */
static const char *next_open(const char *at, const char *end)
{
    while ((at = memchr(at, '<', (size_t)(end - at))) != NULL) {
        const char *past = past_comment(at, end);
        if (past == at) break;
        at = past;
    }
    return at;
}

/* Goes to the next tag; comments, declarations and attributes are passed over. */
static bool next_tag(xml *x)
{
    const char *from = next_open(x->at, x->end);
    const char *to = from ? memchr(from, '>', (size_t)(x->end - from)) : NULL;
    x->tag[0] = x->text[0] = '\0';
    if (!to) return false;
    x->closing = from[1] == '/';
    x->empty = !x->closing && to[-1] == '/';
    from += x->closing ? 2 : 1;
    const size_t n = strcspn(from, " \t\r\n/>");
    snprintf(x->tag, sizeof x->tag, "%.*s", n < 31 ? (int)n : 31, from);
    const char *text = to + 1, *past;
    for (; text < x->end; text = past) {
        past = blank(*text) ? text + 1 : past_comment(text, x->end);
        if (past == text) break;
    }
    const char *stop = memchr(text, '<', (size_t)(x->end - text));
    if (!stop) stop = x->end;
    x->at = stop;
    if (x->empty) return true;
    while (stop > text && blank(stop[-1])) stop--;
    snprintf(x->text, sizeof x->text, "%.*s",
             stop - text < NAME - 1 ? (int)(stop - text) : NAME - 1, text);
    return true;
}

/* ---- one file ---- */

typedef struct voc {
    tp_coco *X;
    const char *path; /* of the file that is read */
    names classes;    /* sorted once all are known */
    bool collect;     /* only the classes          */
    int64_t image;    /* id of the image           */
} voc;

static bool fail(voc *v, const xml *x, const char *reason)
{
    tp__coco_fail(v->X, "%.800s: line %lld: %s", v->path, (long long)tp__line_of(x->bytes, x->at),
                  reason);
    return false;
}

static bool number(voc *v, const xml *x, double *to)
{
    char *end;
    *to = tp_number_read(x->text, &end);
    return (end > x->text && !*end && fabs(*to) < 1e9) || fail(v, x, "a number is expected");
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Adds a class that is new. */
static bool collect(voc *v, const xml *x, const char *name)
{
    for (size_t i = 0; i < v->classes.first.count; i++)
        if (strcmp(name_at(&v->classes, i), name) == 0) return true;
    if (v->classes.first.count == CLASSES) return fail(v, x, "there are more than 10000 classes");
    return add_name(&v->classes, name) || fail(v, x, "out of memory");
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

/* Adds an object whose corners are known. */
static bool add_object(voc *v, const xml *x, const char *name, bool difficult,
                       const double corner[4])
{
    if (corner[2] < corner[0] || corner[3] < corner[1])
        return fail(v, x, "the box ends before it begins");
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
static bool read_object(voc *v, xml *x)
{
    static const char *const corners[] = { "xmin", "ymin", "xmax", "ymax" };
    char name[NAME] = "";
    bool difficult = false;
    double corner[4];
    int seen = 0, part = 0;
    if (x->empty) return fail(v, x, "<object> has no <name>");
    while (next_tag(x) && strcmp(x->tag, "object") != 0) {
        if (strcmp(x->tag, "part") == 0) part += x->closing ? -1 : !x->empty;
        if (x->closing || part) continue;
        if (strcmp(x->tag, "name") == 0) memcpy(name, x->text, sizeof name);
        if (strcmp(x->tag, "difficult") == 0) difficult = strcmp(x->text, "1") == 0;
        for (int i = 0; i < 4; i++) {
            if (strcmp(x->tag, corners[i]) != 0) continue;
            if (!number(v, x, &corner[i])) return false;
            seen |= 1 << i;
        }
    }
    if (!x->closing || strcmp(x->tag, "object") != 0) return fail(v, x, "<object> is not closed");
    if (!name[0]) return fail(v, x, "<object> has no <name>");
    if (v->collect) return collect(v, x, name);
    if (seen != 15) return fail(v, x, "<object> lacks one of <xmin>, <ymin>, <xmax>, <ymax>");
    return add_object(v, x, name, difficult, corner);
}

static bool read_xml(voc *v, xml *x, const char *stem)
{
    char file[NAME + 8] = "";
    double width = 0.0, height = 0.0;
    bool any = false;
    while (next_tag(x)) {
        any |= strcmp(x->tag, "annotation") == 0;
        if (x->closing) continue;
        if (strcmp(x->tag, "filename") == 0) snprintf(file, sizeof file, "%s", x->text);
        if (strcmp(x->tag, "width") == 0 && !number(v, x, &width)) return false;
        if (strcmp(x->tag, "height") == 0 && !number(v, x, &height)) return false;
        if (strcmp(x->tag, "object") == 0 && !read_object(v, x)) return false;
    }
    if (!any) return fail(v, x, "there is no <annotation>");
    if (v->collect) return true;
    if (!(width >= 1.0 && height >= 1.0 && width * height <= TP_RLE_PIXELS))
        return fail(v, x, "<size> has no <width> and <height>, or impossible ones");
    if (!file[0]) snprintf(file, sizeof file, "%.*s.jpg", NAME, stem);
    return tp__coco_image(v->X, v->image, (int64_t)height, (int64_t)width, file);
}

static bool read_file(voc *v, const char *folder, const char *stem)
{
    char path[PATH], why[512];
    tp_blob b = { 0 };
    snprintf(path, sizeof path, "%.1500s/Annotations/%.300s.xml", folder, stem);
    v->path = path;
    bool done = tp__blob_read(&b, path, LARGEST, why, sizeof why);
    if (!done) {
        tp__coco_fail(v->X, "%.800s: %s", path, why);
    } else {
        xml x = { .bytes = (const char *)b.bytes,
                  .end = (const char *)b.bytes + b.size,
                  .at = (const char *)b.bytes };
        done = read_xml(v, &x, stem);
    }
    tp__blob_free(&b);
    v->path = "";
    return done;
}

/* ---- the folder ---- */

/* Sorts names by their bytes. */
static bool sort(names *n)
{
    names sorted = { 0 };
    const size_t count = n->first.count;
    const char **name = malloc((count + 1) * sizeof *name);
    bool done = name != NULL;
    for (size_t i = 0; done && i < count; i++) name[i] = name_at(n, i);
    if (done) qsort(name, count, sizeof *name, by_bytes);
    for (size_t i = 0; done && i < count; i++) done = add_name(&sorted, name[i]);
    free(name);
    release(n);
    *n = sorted;
    return done;
}

/* The names of all files of annotations. */
static bool list_folder(tp_coco *X, const char *folder, names *n)
{
    char path[PATH];
    struct dirent *e;
    bool done = true;
    snprintf(path, sizeof path, "%.1500s/Annotations", folder);
    DIR *d = opendir(path);
    if (!d) {
        tp__coco_fail(
            X, "%.900s: cannot be opened; a folder of Pascal VOC has its annotations there", path);
        return false;
    }
    while (done && (e = readdir(d))) {
        const size_t length = strlen(e->d_name);
        if (length < 5 || !tp_ends_in(e->d_name, ".xml")) continue;
        e->d_name[length - 4] = '\0';
        done = add_name(n, e->d_name);
    }
    closedir(d);
    done = done && sort(n);
    if (!done) tp__coco_fail(X, "%.900s: out of memory for its list of files", path);
    return done;
}

/* The first words of the lines of the part's list. */
static bool read_list(tp_coco *X, const char *path, names *n)
{
    char why[512], name[NAME];
    tp_blob b = { 0 };
    if (!tp__blob_read(&b, path, LARGEST, why, sizeof why)) {
        tp__coco_fail(X, "%.900s: %s", path, why);
        tp__blob_free(&b);
        return false;
    }
    const char *at = (const char *)b.bytes, *end = at + b.size;
    bool done = true;
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

/* The list of the part, or all files if the folder has no lists. */
static bool names_of_part(tp_coco *X, const char *folder, tp_part part, names *n)
{
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
    if (stat(path, &st) != 0) return list_folder(X, folder, n);
    tp__coco_fail(X, "%.900s: has no Main/%s.txt", path, lists[part][0]);
    return false;
}

static bool read_all(voc *v, const char *folder, const names *n)
{
    bool done = true;
    for (size_t i = 0; done && i < n->first.count; i++) {
        v->image = (int64_t)i + 1;
        done = read_file(v, folder, name_at(n, i));
    }
    return done;
}

tp_coco *tp_coco_voc(const char *folder, tp_part part)
{
    names all = { 0 }, of_part = { 0 };
    voc v = { .X = tp__coco_new(), .collect = true };
    if (!tp_coco_ok(v.X)) return v.X;
    bool done = list_folder(v.X, folder, &all) && read_all(&v, folder, &all);
    if (done && !sort(&v.classes))
        tp__coco_fail(v.X, "%.900s: out of memory for its classes", folder);
    done = done && names_of_part(v.X, folder, part, &of_part);
    for (size_t i = 0; i < v.classes.first.count; i++)
        done = done && tp__coco_category(v.X, (int64_t)i + 1, name_at(&v.classes, i));
    v.collect = false;
    if (done) read_all(&v, folder, &of_part);
    tp__coco_finish(v.X, NULL);
    release(&all);
    release(&of_part);
    release(&v.classes);
    return v.X;
}
