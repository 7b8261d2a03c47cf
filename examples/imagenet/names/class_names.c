/* class_names.c - finds words for class names, and matches the classes of images with a model's. */
#include "class_names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/nearest.h>
#include <unistd.h>

enum { MOST_TEXT = 1 << 24 }; /* bytes of a names file */

char *class_names_of(const tp_image_set *X)
{
    const int n = tp_image_set_classes(X);
    size_t bytes = 1;
    for (int i = 0; i < n; i++) bytes += strlen(tp_image_set_class(X, i)) + 1;
    char *text = calloc(bytes, 1), *at = text;
    for (int i = 0; text && i < n; i++) at += sprintf(at, "%s\n", tp_image_set_class(X, i));
    return text;
}

void class_names_write(tp_writer *W, const tp_image_set *X)
{
    char *text = class_names_of(X);
    if (text) tp_writer_meta(W, "class_names", text);
    free(text);
}

const char *class_name(const char *text, int64_t i, char *buf, size_t size)
{
    for (int64_t k = 0; text && *text && k < i; k++) {
        text = strchr(text, '\n');
        if (text) text++;
    }
    if (text && *text)
        snprintf(buf, size, "%.*s", (int)strcspn(text, "\n"), text);
    else
        snprintf(buf, size, "class %lld", (long long)i);
    return buf;
}

bool class_names_agree(const char *text, const tp_image_set *X, char *why, size_t size)
{
    for (int i = 0; text && i < tp_image_set_classes(X); i++) {
        char theirs[256];
        class_name(text, i, theirs, sizeof theirs);
        if (strncmp(theirs, tp_image_set_class(X, i), sizeof theirs - 1) == 0) continue;
        snprintf(why, size, "class %d is '%s' in the model and '%s' in the images", i, theirs,
                 tp_image_set_class(X, i));
        return false;
    }
    return true;
}

/* ---- as words ---- */

/* An IP102 folder without classes.txt calls its classes "class 0", "class 1", ... */
static bool nameless(const char *text)
{
    return !text || strncmp(text, "class 0\n", 8) == 0;
}

static const name_list *usual_list(const char *stored, int64_t classes)
{
    static const char *const certain[] = { "imagenet", "imagenet21k" };
    for (size_t i = 0; i < sizeof certain / sizeof certain[0]; i++)
        if (name_list_find(certain[i])->count == classes) return name_list_find(certain[i]);
    const name_list *ip102 = name_list_find("ip102");
    return stored && ip102->count == classes ? ip102 : NULL;
}

/* Makes every line end in a lone \n and drops a byte order mark; `text` has room for one more and
 * its end. False with the reason in why: not text. */
static bool normalize(char *text, size_t n, char *why, size_t size)
{
    const char *from = text;
    if (n > 0 && !tp_skip_bom(&from, &n, why, size)) return false;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (from[i] != '\r' || (i + 1 < n && from[i + 1] != '\n')) text[kept++] = from[i];
    if (kept > 0 && text[kept - 1] != '\n') text[kept++] = '\n';
    text[kept] = '\0';
    return true;
}

/* Reports an unreadable --names file. */
static void no_file(const char *given, const char *problem, char *why, size_t size)
{
    tp_nearest near = tp_nearest_to(given);
    for (const name_list *l = name_lists; l->id; l++) tp_nearest_try(&near, l->id);
    if (near.name[0])
        snprintf(why, size, "--names %s: %s; did you mean %s?", given, problem, near.name);
    else
        snprintf(
            why, size,
            "--names %s: %s; give a file with a name per line, or imagenet, imagenet21k, cifar10, "
            "cifar100, food101 or ip102",
            given, problem);
}

/* Reads a file as text. NULL with the reason in why. */
static char *read_lines(const char *path, char *why, size_t size)
{
    const char *kind;
    int64_t bytes;
    const int fd = tp_open_regular(path, &bytes, &kind);
    if (fd < 0) {
        char problem[300];
        snprintf(problem, sizeof problem, kind ? "is %s" : "%s", kind ? kind : strerror(errno));
        no_file(path, problem, why, size);
        return NULL;
    }
    char *text = bytes <= MOST_TEXT ? malloc((size_t)bytes + 2) : NULL;
    const size_t n = text ? tp_read_bytes(fd, 0, text, (size_t)bytes) : 0;
    const bool whole = text && (n == (size_t)bytes || errno == 0);
    char wrong[300] = "";
    if (bytes > MOST_TEXT)
        snprintf(why, size, "--names %s: it has %lld bytes; names of classes take %d at most", path,
                 (long long)bytes, MOST_TEXT);
    else if (!whole)
        snprintf(why, size, "--names %s: %s", path, text ? strerror(errno) : "out of memory");
    close(fd);
    if (whole && normalize(text, n, wrong, sizeof wrong)) return text;
    if (wrong[0]) snprintf(why, size, "--names %s %s", path, wrong);
    free(text);
    return NULL;
}

static int64_t count_lines(const char *text)
{
    int64_t n = 0;
    for (; (text = strchr(text, '\n')); text++) n++;
    return n;
}

bool class_names_find(class_names *n, const char *given, const char *stored, int64_t classes,
                      char *why, size_t size)
{
    *n = (class_names){ 0 };
    if (!given && nameless(stored)) {
        n->list = usual_list(stored, classes);
        return true;
    }
    if (!given) {
        n->text = strdup(stored);
        if (!n->text) snprintf(why, size, "out of memory");
        return n->text != NULL;
    }
    n->list = name_list_find(given);
    if (!n->list && !(n->text = read_lines(given, why, size))) return false;
    const int64_t count = n->list ? n->list->count : count_lines(n->text);
    if (count == classes) return true;
    snprintf(why, size, "--names %s: has %lld names, the model has %lld classes", given,
             (long long)count, (long long)classes);
    return false;
}

void class_names_free(class_names *n)
{
    free(n->text);
    *n = (class_names){ 0 };
}

/* Makes words of w->name. */
static void find_words(class_words *w)
{
    const char *synset = wnid_words(w->name), *food = food_words(w->name);
    if (synset) memcpy(w->wnid, w->name, sizeof w->wnid);
    if (synset || food) snprintf(w->name, sizeof w->name, "%s", synset ? synset : food);
}

class_words class_words_at(const class_names *n, int64_t i)
{
    class_words w = { 0 };
    if (n->list) {
        snprintf(w.name, sizeof w.name, "%s", name_list_at(n->list, i, w.wnid));
        return w;
    }
    class_name(n->text, i, w.name, sizeof w.name);
    if (!w.name[0]) class_name(NULL, i, w.name, sizeof w.name);
    find_words(&w);
    return w;
}

static bool same(const class_words *a, const class_words *b)
{
    return strcmp(a->wnid, b->wnid) == 0 && (a->wnid[0] || strcmp(a->name, b->name) == 0);
}

/* The class's number in all [classes]; tries k first. -1: none. */
static int64_t find_class(const class_words *all, int64_t classes, const class_words *w, int64_t k)
{
    if (k < classes && same(&all[k], w)) return k;
    for (int64_t i = 0; i < classes; i++)
        if (same(&all[i], w)) return i;
    return -1;
}

/* The number in a name: "7", or "class 7", the name of nameless classes. -1: none. */
static int64_t number_of(const char *name)
{
    if (strncmp(name, "class ", 6) == 0) name += 6;
    const size_t n = strspn(name, "0123456789");
    return n > 0 && n < 10 && !name[n] ? strtoll(name, NULL, 10) : -1;
}

/* Matches classes by number if all names are numbers. False: one is not, or is too large. */
static bool labels_by_number(const class_words *all, int64_t classes, const tp_image_set *X,
                             int32_t *label)
{
    const int64_t none = number_of(all[0].name);
    for (int k = 0; k < tp_image_set_classes(X); k++) {
        const int64_t n = number_of(tp_image_set_class(X, k));
        int64_t at = n < classes ? n : -1;
        for (int64_t i = 0; at >= 0 && none >= 0 && number_of(all[at].name) != n && i < classes;
             i++)
            if (number_of(all[i].name) == n) at = i;
        if (at < 0 || (none >= 0 && number_of(all[at].name) != n)) return false;
        label[k] = (int32_t)at;
    }
    return true;
}

bool class_labels(const class_names *n, int64_t classes, const tp_image_set *X, int32_t *label,
                  char *warning, size_t warning_size, char *why, size_t size)
{
    const int count = tp_image_set_classes(X);
    int found = 0, missing = -1;
    class_words *all = malloc((size_t)classes * sizeof *all);
    if (!all) {
        snprintf(why, size, "out of memory");
        return false;
    }
    for (int64_t i = 0; i < classes; i++) all[i] = class_words_at(n, i);
    for (int k = 0; k < count; k++) {
        class_words w = { 0 };
        snprintf(w.name, sizeof w.name, "%s", tp_image_set_class(X, k));
        find_words(&w);
        label[k] = (int32_t)find_class(all, classes, &w, k);
        if (label[k] < 0 && missing < 0) missing = k;
        found += label[k] >= 0;
    }
    const bool numbered = missing >= 0 && labels_by_number(all, classes, X, label);
    free(all);
    if (missing < 0 || numbered) return true;
    if (found == 0 && warning && count == classes) {
        for (int k = 0; k < count; k++) label[k] = k;
        snprintf(
            warning, warning_size,
            "warning: no class of the model is called '%.100s' or '%.100s': the folders are taken "
            "in their order; call them as the model's classes, by name, wnid or number",
            tp_image_set_class(X, 0), tp_image_set_class(X, count - 1));
        return true;
    }
    snprintf(why, size,
             "the model has %d of the images' %d classes, but no '%.200s': call the folders as the "
             "model's classes, by their names, wnids or numbers, or give the names with --names",
             found, count, tp_image_set_class(X, missing));
    return false;
}
