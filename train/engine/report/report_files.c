/* report_files.c - the pictures and texts of a run's folder and its subfolders, for the page.
 *
 * Links are not followed: a page is sent to others, and must not contain files from elsewhere.
 * Pictures become data URIs. Only their first bytes are checked: a browser shows the valid part of
 * a damaged picture, and runs no code of an SVG used as an image. */
#include <dirent.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/file.h>
#include <unistd.h>

#include "report.h"

enum { MOST = 256, TEXT = 8 << 10 };

/* Paths within the folder, each folder's sorted, with its own files first. */
typedef struct listing {
    const char *folder;
    char name[MOST][520];
    int n, left_out; /* left_out: beyond the limit */
    int links;       /* files and folders that are links */
} listing;

/* ---- JSON strings ---- */

json_t *tp__report_text(const char *bytes, size_t n)
{
    char *repaired = malloc(3 * n + 1);
    size_t used = 0;
    uint32_t ignored;
    for (size_t i = 0; repaired && i < n;) {
        const size_t length = tp_utf8_at(bytes + i, &ignored);
        memcpy(repaired + used, length ? bytes + i : "\xef\xbf\xbd", length ? length : 3);
        used += length ? length : 3;
        i += length ? length : 1;
    }
    json_t *text = repaired ? json_stringn(repaired, used) : NULL;
    free(repaired);
    return text;
}

void tp__report_note(json_t *notes, const char *fmt, ...)
{
    char text[5000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    json_array_append_new(notes, tp__report_text(text, strlen(text)));
}

/* ---- listing ---- */

static const char *type_of(const char *name)
{
    static const char *const types[][2] = {
        { ".png", "image/png" },     { ".jpg", "image/jpeg" }, { ".jpeg", "image/jpeg" },
        { ".svg", "image/svg+xml" }, { ".txt", "text/plain" },
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (tp_ends_in(name, types[i][0])) return types[i][1];
    return NULL;
}

/* Any picture except plot.sh's curves, which repeat the page's; only texts named sample*, since a
 * folder may also hold training texts. */
static bool wanted(const char *name)
{
    if (*name == '.' || !type_of(name)) return false;
    if (tp_ends_in(name, ".txt")) return strncmp(name, "sample", 6) == 0;
    return strcmp(name, "curve.png") != 0;
}

static void note_name(listing *l, const char *sub, const char *name)
{
    if (l->n == MOST)
        l->left_out++;
    else
        snprintf(l->name[l->n++], sizeof l->name[0], "%s%s%s", sub, *sub ? "/" : "", name);
}

/* sub: "" or a subfolder. */
static void list(listing *l, const char *sub);

static bool is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool tp__report_link(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0 && S_ISLNK(s.st_mode);
}

/* Notes a file of `sub`, and a subfolder's files if sub is "". */
static void list_entry(listing *l, const char *sub, const char *name, bool folders)
{
    char path[4900];
    snprintf(path, sizeof path, "%s/%s/%s", l->folder, sub, name);
    const bool folder = *name != '.' && !*sub && !wanted(name) && is_folder(path);
    if (folder != folders || !(folder || wanted(name))) return;
    if (tp__report_link(path))
        l->links++;
    else if (folder)
        list(l, name);
    else
        note_name(l, sub, name);
}

static void list(listing *l, const char *sub)
{
    char path[4400];
    struct dirent **entry;
    snprintf(path, sizeof path, "%s/%s", l->folder, sub);
    const int n = scandir(path, &entry, NULL, alphasort);
    for (int i = 0; i < n; i++) list_entry(l, sub, entry[i]->d_name, false);
    for (int i = 0; i < n; i++) {
        list_entry(l, sub, entry[i]->d_name, true);
        free(entry[i]);
    }
    if (n >= 0) free(entry);
}

/* ---- contents ---- */

static json_t *base64(const char *type, const unsigned char *b, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t room = 64 + (n + 2) / 3 * 4;
    char *text = malloc(room);
    if (!text) return NULL;
    size_t used = (size_t)snprintf(text, room, "data:%s;base64,", type);
    for (size_t i = 0; i < n; i += 3) {
        const uint32_t three = (uint32_t)b[i] << 16 | (uint32_t)(i + 1 < n ? b[i + 1] : 0) << 8 |
                               (uint32_t)(i + 2 < n ? b[i + 2] : 0);
        for (int k = 0; k < 4; k++)
            text[used++] = i + (size_t)k <= n ? digits[three >> (18 - 6 * k) & 63] : '=';
    }
    json_t *uri = json_stringn(text, used);
    free(text);
    return uri;
}

/* Do the first bytes fit the name? */
static bool begins_as(const char *type, const char *b, size_t n)
{
    if (strcmp(type, "image/png") == 0) return n > 8 && memcmp(b, "\x89PNG", 4) == 0;
    if (strcmp(type, "image/jpeg") == 0) return n > 3 && memcmp(b, "\xff\xd8\xff", 3) == 0;
    for (size_t i = 0; i + 4 < n && i < 4096; i++)
        if (memcmp(b + i, "<svg", 4) == 0) return true;
    return false;
}

/* Adds the n bytes of a file to the list. */
static bool include(json_t *files, const char *name, const char *bytes, size_t n, bool cut)
{
    const char *type = type_of(name);
    const bool text = strcmp(type, "text/plain") == 0;
    if (!text && !begins_as(type, bytes, n)) return false;
    json_t *file = json_object();
    json_object_set_new(file, "name", tp__report_text(name, strlen(name)));
    json_object_set_new(file, text ? "text" : "picture",
                        text ? tp__report_text(bytes, n)
                             : base64(type, (const unsigned char *)bytes, n));
    json_object_set_new(file, "cut", json_boolean(cut));
    json_array_append_new(files, file);
    return true;
}

/* A PNG beside an SVG of that name is a copy. */
static bool doubles(const listing *l, int i)
{
    const size_t n = strlen(l->name[i]);
    for (int k = 0; tp_ends_in(l->name[i], ".png") && k < l->n; k++)
        if (strlen(l->name[k]) == n && tp_ends_in(l->name[k], ".svg") &&
            memcmp(l->name[i], l->name[k], n - 4) == 0)
            return true;
    return false;
}

/* Adds a file to the list if it fits *room; false if it is too large. */
static bool add(json_t *files, const char *folder, const char *name, size_t *room, json_t *notes)
{
    char path[4500];
    const char *kind;
    int64_t all = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = tp_open_regular(path, &all, &kind);
    const bool text = tp_ends_in(name, ".txt");
    const size_t n = text && all > TEXT ? TEXT : (size_t)(all > 0 ? all : 0);
    const bool fits = fd < 0 || n <= *room;
    char *bytes = fd >= 0 && fits ? malloc(n + 1) : NULL;
    if (bytes) bytes[n] = '\0';
    const bool done = bytes && tp_read_bytes(fd, 0, bytes, n) == n &&
                      include(files, name, bytes, n, (int64_t)n < all);
    if (done) *room -= n;
    if (!done && fits)
        tp__report_note(notes, "%s cannot be shown: it is damaged or cannot be read.", name);
    free(bytes);
    if (fd >= 0) close(fd);
    return fits;
}

json_t *tp__report_files(const char *folder, size_t *room, json_t *notes)
{
    listing *l = calloc(1, sizeof *l);
    json_t *files = json_array();
    if (!l) return files;
    l->folder = folder;
    list(l, "");
    int more = l->left_out;
    const int links = l->links;
    for (int i = 0; i < l->n; i++)
        if (!doubles(l, i)) more += !add(files, folder, l->name[i], room, notes);
    free(l);
    if (links > 0)
        tp__report_note(
            notes,
            "%d link%s in the folder %s not followed, so that nothing from elsewhere gets "
            "into this page; copy what it is to show.",
            links, links == 1 ? "" : "s", links == 1 ? "is" : "are");
    if (more > 0)
        tp__report_note(notes, "%d more file%s would make this page too large; see the folder.",
                        more, more == 1 ? "" : "s");
    return files;
}
