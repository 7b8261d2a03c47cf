/* files.c - names of files and folders: lists, companions and parts; sets of files. */
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include <tapegrad/data.h>
#include <tapegrad/random.h>

/* ---- lists ---- */

int tp__by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool tp__is_whole(const char *text)
{
    text += *text == '-';
    const size_t n = strspn(text, "0123456789");
    return n > 0 && !text[n];
}

int tp__by_value(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    const bool below = *x == '-';
    if (below != (*y == '-')) return below ? -1 : 1;
    x += below, y += below;
    x += strspn(x, "0"), y += strspn(y, "0");
    const size_t n = strlen(x), m = strlen(y);
    const int order = n != m ? (n < m ? -1 : 1) : strcmp(x, y);
    if (order == 0) return tp__by_bytes(a, b);
    return (order < 0) != below ? -1 : 1;
}

void tp__names_free(char **names, int n)
{
    for (int i = 0; i < n; i++) free(names[i]);
    free(names);
}

int tp__names(const char *folder, bool (*wants)(void *env, const struct dirent *e), void *env,
              char ***names)
{
    char **list = NULL;
    size_t n = 0, room = 0;
    DIR *d = opendir(folder);
    bool whole = d != NULL;
    *names = NULL;
    if (d) errno = 0;
    for (struct dirent *e; whole && (e = readdir(d)); errno = whole ? 0 : ENOMEM) {
        if (e->d_name[0] == '.' || tp__companion(e->d_name) || (wants && !wants(env, e))) continue;
        whole =
            tp_reserve(&list, &room, n, 1, sizeof(char *)) && (list[n] = strdup(e->d_name)) != NULL;
        n += whole;
    }
    const int error = errno; /* a failed readdir returns NULL, too */
    if (d) closedir(d);
    if (error) {
        tp__names_free(list, (int)n);
        errno = error;
        return -1;
    }
    if (n > 1) qsort(list, n, sizeof *list, tp__by_bytes);
    *names = list;
    return (int)n;
}

/* ---- companions ----
 *
 * Names are compared without case, as some systems ignore it. The list has only names that nobody
 * gives to a class or an example. */

static const char *const names[] = {
    /* macOS */
    "__MACOSX", "Icon\r", "Network Trash Folder", "Temporary Items",
    /* Windows */
    "Thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", "$RECYCLE.BIN", "RECYCLER",
    "System Volume Information",
    /* network storage */
    "@eaDir", "#recycle", "#snapshot", "@Recycle", "@Recently-Snapshot",
    /* tools */
    "lost+found", "__pycache__"
};

/* A stream of a file, stored as a separate file. */
static const char *const ends[] = { ":Zone.Identifier", "@SynoResource", "@SynoEAStream" };

static bool is_companion(const char *name, size_t n)
{
    if (n > 1 && name[0] == '.') return n != 2 || name[1] != '.';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && strncasecmp(name, names[i], n) == 0) return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t k = strlen(ends[i]);
        if (n > k && strncasecmp(name + n - k, ends[i], k) == 0) return true;
    }
    return false;
}

bool tp__companion(const char *path)
{
    for (const char *at = path;; at++) {
        const size_t n = strcspn(at, "/");
        if (is_companion(at, n)) return true;
        at += n;
        if (!*at) return false;
    }
}

/* ---- parts ---- */

int tp__part_of_word(const char *word, size_t n)
{
    static const struct {
        const char *word;
        tp_part part;
    } words[] = { { "train", TP_TRAIN }, { "training", TP_TRAIN }, { "val", TP_VALID },
                  { "valid", TP_VALID }, { "dev", TP_VALID },      { "validation", TP_VALID },
                  { "test", TP_TEST },   { "testing", TP_TEST },   { "eval", TP_TEST } };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].word) == n && strncasecmp(word, words[i].word, n) == 0)
            return (int)words[i].part;
    return TP_NO_PART;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

int tp__part_of_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    int part = TP_NO_PART;
    for (const char *at = slash ? slash + 1 : path; *at;) {
        size_t n = 0;
        while (is_letter(at[n])) n++;
        const int named = tp__part_of_word(at, n);
        if (named != TP_NO_PART) part = named;
        at += n ? n : 1;
    }
    return part;
}

/* ---- a set of files: a hash table with open addressing ---- */

typedef struct tp_file_id id;

static size_t place_of(const tp_file_set *S, id x)
{
    size_t i = (size_t)tp_hash(tp_hash(TP_HASH, x.device), x.number) & (S->room - 1);
    while (S->slot[i].used && (S->slot[i].device != x.device || S->slot[i].number != x.number))
        i = (i + 1) & (S->room - 1);
    return i;
}

static bool grow(tp_file_set *S)
{
    tp_file_set more = { .count = S->count, .room = S->room ? 2 * S->room : 64 };
    more.slot = calloc(more.room, sizeof *more.slot);
    if (!more.slot) return false;
    for (size_t i = 0; i < S->room; i++)
        if (S->slot[i].used) more.slot[place_of(&more, S->slot[i])] = S->slot[i];
    free(S->slot);
    *S = more;
    return true;
}

bool tp__file_set_add(tp_file_set *S, const char *path, bool *fits)
{
    struct stat st;
    *fits = true;
    if (stat(path, &st) != 0) return true;
    *fits = 2 * (S->count + 1) <= S->room || grow(S);
    if (!*fits) return false;
    const id x = { (uint64_t)st.st_dev, (uint64_t)st.st_ino, true };
    const size_t i = place_of(S, x);
    if (S->slot[i].used) return false;
    S->slot[i] = x;
    S->count++;
    return true;
}

bool tp__same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
