/* set_tar.c - shards (tar files of images): their images and labels, and entries by header offset.
 *
 * As in WebDataset a name is split at the first dot of its last component: "a/KEY.jpg" is the part
 * jpg, in any case, of the key a/KEY; the parts of a key are adjacent. Opening reads all headers
 * once and records the offset of each image's header. Reading starts there, so that libarchive
 * handles every dialect of tar. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tapegrad/file.h>

#include "files.h"
#include "kit.h"
#include "load.h"
#include "set.h"

/* ---- one entry ---- */

/* Returns libarchive's error if memory or the disk failed; 0 if the archive is damaged. */
static int system_error(struct archive *a)
{
    const int error = archive_errno(a);
    return error == EIO || error == ESTALE || error == ENOMEM ? error : 0;
}

/* Opens a tar file at the offset of a header. On failure returns NULL, with the reason in why, and
 * errno, which is 0 if the file is damaged. */
static struct archive *open_at(const char *path, int64_t offset, int *fd, char *why, size_t size)
{
    int64_t bytes;
    *fd = tp__open_file(path, &bytes, why, size);
    if (*fd < 0) return NULL;
    struct archive *a = archive_read_new();
    if (a && lseek(*fd, (off_t)offset, SEEK_SET) == (off_t)offset &&
        archive_read_support_format_tar(a) == ARCHIVE_OK &&
        archive_read_open_fd(a, *fd, 1 << 16) == ARCHIVE_OK)
        return a;
    const int error = !a ? ENOMEM : archive_error_string(a) ? system_error(a) : errno;
    snprintf(why, size, "cannot be read: %s",
             a && archive_error_string(a) ? archive_error_string(a) : strerror(error));
    if (a) archive_read_free(a);
    close(*fd);
    errno = error;
    return NULL;
}

/* NULL on failure; errno is set if memory or the disk failed, and 0 if the entry is damaged. */
static void *read_entry(struct archive *a, int64_t most, size_t *n)
{
    struct archive_entry *e;
    const bool found = archive_read_next_header(a, &e) >= ARCHIVE_WARN;
    errno = found ? 0 : system_error(a);
    if (!found || archive_entry_size(e) <= 0 || archive_entry_size(e) >= most) return NULL;
    *n = (size_t)archive_entry_size(e);
    void *bytes = malloc(*n);
    if (bytes && archive_read_data(a, bytes, *n) == (la_ssize_t)*n) return bytes;
    errno = bytes ? system_error(a) : ENOMEM;
    free(bytes);
    return NULL;
}

void *tp__shard_entry(const char *path, int64_t offset, size_t *n, char *why, size_t size)
{
    int fd;
    struct stat st;
    struct archive *a = open_at(path, offset, &fd, why, size);
    *n = 0;
    if (!a) return NULL;
    void *bytes = fstat(fd, &st) == 0 ? read_entry(a, st.st_size - offset, n) : NULL;
    const int error = errno;
    if (!bytes && error == ENOMEM)
        snprintf(why, size, "out of memory for %zu bytes", *n);
    else if (!bytes && error)
        snprintf(why, size, "cannot be read: %s", strerror(error));
    else if (!bytes)
        snprintf(why, size, "cannot be read: %s was truncated or changed after it was opened",
                 path);
    archive_read_free(a);
    close(fd);
    errno = error;
    return bytes;
}

/* ---- images and labels ---- */

enum { LONGEST_KEY = 512, LONGEST_NAME = 255, LONGEST_JSON = 1 << 20, MOST_NUMBERS = 1 << 16 };
enum { FORMATS = 3 };

/* A key as far as it has been read. */
typedef struct pending {
    char key[LONGEST_KEY];
    bool any;               /* there is a key                                           */
    int64_t first;          /* its first image in the set; its last one is the set's    */
    int64_t image[FORMATS]; /* KEY.jpg, KEY.jpeg, KEY.png: images of the set, or -1     */
    int from;               /* source of its label: 0 none yet, 1 KEY.json, 2 KEY.cls   */
    bool is_number;
    int32_t number;
    char name[LONGEST_NAME + 1];
    char other[200];  /* the first entry that is neither image nor label, or "" */
    char dotted[200]; /* a part such as "b.cls", which suggests another key, or "" */
} pending;

typedef struct walk {
    tp_shard_reader *r;
    const char *path;
    size_t path_at; /* in the text of the set */
    struct archive *a;
    pending p;
} walk;

/* ---- names ---- */

/* Splits "a/KEY.jpg". False: no dot (rest: NULL), or too long a key. */
static bool split_name(const char *name, char *key, const char **rest)
{
    const char *slash = strrchr(name, '/');
    const char *dot = strchr(slash ? slash : name, '.');
    const size_t n = dot ? (size_t)(dot - name) : 0;
    *rest = dot ? dot + 1 : NULL;
    if (n >= LONGEST_KEY) return false;
    memcpy(key, name, n);
    key[n] = '\0';
    return dot != NULL;
}

/* Returns the position of a part among the image formats, or -1. */
static int format_of(const char *rest)
{
    static const char *const formats[FORMATS] = { "jpg", "jpeg", "png" };
    for (int i = 0; i < FORMATS; i++)
        if (strcasecmp(rest, formats[i]) == 0) return i;
    return -1;
}

/* Returns the last folder of a key, *n bytes, or NULL. */
static const char *folder_of(const char *key, size_t *n)
{
    const char *slash = strrchr(key, '/'), *from = slash;
    if (!slash) return NULL;
    while (from > key && from[-1] != '/') from--;
    *n = (size_t)(slash - from);
    return *n ? from : NULL;
}

/* Returns the part that a folder of the key names; the last folder may be its class instead. */
static uint8_t part_of(const char *key, bool class_last)
{
    uint8_t part = TP_SHARD_NO_PART;
    for (const char *at = key, *slash; (slash = strchr(at, '/')) != NULL; at = slash + 1) {
        const int named = tp__part_of_word(at, (size_t)(slash - at));
        if (named >= 0 && (!class_last || strchr(slash + 1, '/'))) part = (uint8_t)named;
    }
    return part;
}

/* ---- classes ---- */

static bool grow_slots(tp_shard_reader *r)
{
    const size_t slots = r->slots ? 2 * r->slots : 256;
    int *slot = calloc(slots, sizeof *slot);
    if (!slot) return tp__fail(r->X, "images: out of memory");
    for (int k = 0; k < r->X->classes; k++) {
        size_t at = tp_hash_text(TP_HASH, tp_image_set_class(r->X, k)) % slots;
        while (slot[at]) at = (at + 1) % slots;
        slot[at] = k + 1;
    }
    free(r->slot);
    r->slot = slot;
    r->slots = slots;
    return true;
}

/* Finds or adds a class, numbered by appearance until they are sorted; -1: out of memory. */
static int32_t class_of(tp_shard_reader *r, const char *name)
{
    tp_image_set *X = r->X;
    if (2 * (size_t)X->classes >= r->slots && !grow_slots(r)) return -1;
    size_t at = tp_hash_text(TP_HASH, name) % r->slots;
    for (; r->slot[at]; at = (at + 1) % r->slots)
        if (strcmp(tp_image_set_class(X, r->slot[at] - 1), name) == 0) return r->slot[at] - 1;
    if (!tp__image_set_class(X, name)) return -1;
    r->slot[at] = X->classes;
    return X->classes - 1;
}

bool tp__shard_trained(tp_shard_reader *r, int32_t class)
{
    const int n = class >= r->trained_n ? r->X->classes - r->trained_n : 0;
    if (!tp_reserve(&r->trained, &r->trained_room, (size_t)r->trained_n, (size_t)n,
                    sizeof *r->trained))
        return tp__fail(r->X, "images: out of memory");
    memset(r->trained + r->trained_n, 0, (size_t)n * sizeof *r->trained);
    r->trained_n += n;
    r->trained[class] = true;
    return true;
}

/* ---- labels ---- */

/* Takes a label: digits are a number, anything else is the name of a class. */
static bool take_label(walk *w, const char *what, const char *text, size_t n)
{
    pending *p = &w->p;
    while (n && tp__is_white(text[0])) text++, n--;
    while (n && tp__is_white(text[n - 1])) n--;
    if (n == 0 || n > LONGEST_NAME || memchr(text, '\0', n))
        return tp__fail(w->r->X,
                        "%s: the label of the key '%s' in %s.%s is no number and no name "
                        "of 1 to %d bytes",
                        w->path, p->key, p->key, what, LONGEST_NAME);
    memcpy(p->name, text, n);
    p->name[n] = '\0';
    const bool minus = n > 1 && text[0] == '-';
    p->is_number = strspn(p->name + minus, "0123456789") + minus == n;
    p->number = p->is_number && n < 9 ? (int32_t)strtol(p->name, NULL, 10) : MOST_NUMBERS;
    return !p->is_number || (!minus && p->number < MOST_NUMBERS) ||
           tp__fail(w->r->X,
                    "%s: the key '%s' has the label %.20s; labels are numbers from 0 to %d",
                    w->path, p->key, p->name, MOST_NUMBERS - 1);
}

/* Reads at most `most` bytes of the entry and cuts the rest. -1: it is damaged. */
static la_ssize_t read_text(walk *w, char *text, size_t most)
{
    size_t n = 0;
    while (n < most) {
        const la_ssize_t got = archive_read_data(w->a, text + n, most - n);
        if (got < 0) {
            tp__fail(w->r->X, "%s is damaged or cut off: %s", w->path, archive_error_string(w->a));
            return -1;
        }
        if (got == 0) break;
        n += (size_t)got;
    }
    return (la_ssize_t)n;
}

static bool read_cls(walk *w)
{
    char text[LONGEST_NAME + 34];
    const la_ssize_t n = read_text(w, text, sizeof text);
    const char *at = text;
    size_t size = n > 0 ? (size_t)n : 0;
    if (n < 0) return false;
    if (size >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0) at += 3, size -= 3;
    w->p.from = 2;
    return take_label(w, "cls", at, size);
}

/* Reads the member of KEY.json that is a label, if any. */
static bool read_json(walk *w)
{
    static const char *const members[] = { "label", "cls", "class" };
    char *text = malloc(LONGEST_JSON), number[32];
    const la_ssize_t n = text ? read_text(w, text, LONGEST_JSON) : -1;
    json_t *o = n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL, *label = NULL;
    bool done = n >= 0;
    if (!text) tp__fail(w->r->X, "images: out of memory");
    for (size_t i = 0; !label && i < sizeof members / sizeof *members; i++)
        label = json_object_get(o, members[i]);
    if (json_is_number(label)) { /* 3 or 3.0 */
        snprintf(number, sizeof number, "%.15g", json_number_value(label));
        done = take_label(w, "json", number, strlen(number));
    } else if (json_is_string(label)) {
        done = take_label(w, "json", json_string_value(label), json_string_length(label));
    }
    if (done && (json_is_number(label) || json_is_string(label))) w->p.from = 1;
    json_decref(o);
    free(text);
    return done;
}

/* ---- keys ---- */

static bool no_label(walk *w)
{
    const pending *p = &w->p;
    if (p->dotted[0])
        return tp__fail(w->r->X,
                        "%s: the key '%s' has no label %s.cls: a key ends at the first "
                        "dot of a name, so '%s' is another part of it; rename its files",
                        w->path, p->key, p->key, p->dotted);
    return tp__fail(w->r->X,
                    "%s: the image '%s' has no label: add a file %s.cls with its number "
                    "or class beside it, or put it into a folder named after its class",
                    w->path, p->key, p->key);
}

/* Keeps one image of a key, the first by format. */
static void choose_image(walk *w)
{
    const pending *p = &w->p;
    tp_image_set *X = w->r->X;
    int64_t best = -1;
    for (int i = 0; i < FORMATS && best < 0; i++) best = p->image[i];
    const int64_t others = X->count - p->first - (best >= 0);
    for (int64_t i = 0; i < others; i++) tp__image_set_left(X, TP_LEFT_SECOND, "%s", p->key);
    if (best < 0)
        tp__image_set_left(X, TP_LEFT_KEY, "%s in %s", p->key, w->path);
    else
        X->item[p->first] = X->item[best];
    X->count = p->first + (best >= 0);
}

/* Returns the label of the key's images; how: 0 by number, 1 by name, 2 by folder. */
static int32_t label_of(walk *w, int *how)
{
    const pending *p = &w->p;
    char class[LONGEST_KEY];
    size_t n = 0;
    *how = p->from ? !p->is_number : 2;
    if (*how == 0) return p->number;
    if (*how == 1) return class_of(w->r, p->name);
    const char *folder = p->dotted[0] ? NULL : folder_of(p->key, &n);
    if (!folder) return no_label(w) ? 0 : -1;
    memcpy(class, folder, n);
    class[n] = '\0';
    return class_of(w->r, class);
}

/* Labels the images of a key after its last part. An image without a label is an error: dropping it
 * would shrink the set silently. */
static bool finish(walk *w)
{
    const pending *p = &w->p;
    tp_shard_reader *r = w->r;
    tp_image_set *X = r->X;
    int how;
    if (!p->any || X->why[0]) return !X->why[0];
    if (p->from)
        choose_image(w);
    else if (X->count == p->first && p->other[0])
        tp__image_set_left(X, TP_LEFT_FILE, "%s", p->other);
    if (X->count == p->first) return true;
    const int32_t label = label_of(w, &how);
    if (label < 0) return false;
    if (how == 0 && label > r->largest) r->largest = label;
    if (!r->labelled[how][0])
        snprintf(r->labelled[how], sizeof r->labelled[how], "%.200s: '%.480s'", w->path, p->key);
    if (r->names_only) X->count = p->first;
    if (r->names_only && how > 0 && !tp__shard_trained(r, label)) return false;
    const size_t n = (size_t)(X->count - p->first);
    if (!tp_reserve(&r->part, &r->part_room, (size_t)p->first, n, sizeof *r->part) ||
        !tp_reserve(&r->next, &r->next_room, (size_t)p->first, n, sizeof *r->next))
        return tp__fail(X, "images: out of memory");
    for (int64_t i = p->first; i < X->count; i++) {
        X->item[i].label = label;
        r->part[i] = part_of(p->key, how == 2);
        r->next[i] = i > p->first;
    }
    return true;
}

/* Adds an entry. */
static bool add(walk *w, const char *name)
{
    char key[LONGEST_KEY];
    const char *rest;
    pending *p = &w->p;
    if (!split_name(name, key, &rest)) {
        if (!rest) tp__image_set_left(w->r->X, TP_LEFT_FILE, "%s", name);
        return !rest || tp__fail(w->r->X, "%s: the key of '%.100s...' has more than %d bytes",
                                 w->path, name, LONGEST_KEY - 1);
    }
    if (!p->any || strcmp(key, p->key) != 0) {
        if (!finish(w)) return false;
        *p = (pending){ .any = true, .first = w->r->X->count, .image = { -1, -1, -1 } };
        memcpy(p->key, key, sizeof key);
    }
    const int format = format_of(rest);
    if (strcasecmp(rest, "cls") == 0) return read_cls(w);
    if (strcasecmp(rest, "json") == 0) return p->from == 2 || read_json(w);
    if (strlen(rest) > 4 && strcasecmp(rest + strlen(rest) - 4, ".cls") == 0)
        snprintf(p->dotted, sizeof p->dotted, "%.199s", rest);
    if (!tp__is_image(name)) {
        if (!p->other[0]) snprintf(p->other, sizeof p->other, "%.199s", name);
        return true;
    }
    if (format >= 0 && p->image[format] < 0) p->image[format] = w->r->X->count;
    return tp__image_set_item(w->r->X, w->path_at, archive_read_header_position(w->a), -1);
}

static bool add_entry(walk *w, struct archive_entry *e)
{
    const char *name = archive_entry_pathname(e);
    while (name && name[0] == '.' && name[1] == '/') name += 2;
    if (!name || tp__companion(name)) return true;
    if (archive_entry_hardlink(e) || archive_entry_filetype(e) == AE_IFLNK) {
        if (tp__is_image(name)) tp__image_set_left(w->r->X, TP_LEFT_LINKED, "%s", name);
        return true;
    }
    return archive_entry_filetype(e) != AE_IFREG || add(w, name);
}

void tp__shard_walk(tp_shard_reader *r, const char *path)
{
    int fd, got = ARCHIVE_OK;
    char why[256];
    struct archive_entry *e;
    walk w = { .r = r, .path = path, .a = open_at(path, 0, &fd, why, sizeof why) };
    if (!w.a) {
        tp__fail(r->X, "%s %s", path, why);
        return;
    }
    w.path_at = tp__image_set_text(r->X, path);
    bool on = !r->X->why[0];
    while (on && (got = archive_read_next_header(w.a, &e)) != ARCHIVE_EOF)
        on = got < ARCHIVE_WARN
                 ? tp__fail(r->X, "%s is damaged or cut off: %s", path, archive_error_string(w.a))
                 : add_entry(&w, e);
    finish(&w);
    archive_read_free(w.a);
    close(fd);
}
