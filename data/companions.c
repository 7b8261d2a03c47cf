/* companions.c - names of files and folders that operating systems and tools leave next to data.
 *
 * Where a system ignores case, names are compared without it. A name stands here only if nobody gives it to a class
 * or an example. */
#include "companions.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

/* clang-format off */
static const char *const names[] = {
    "__MACOSX", "Icon\r", "Network Trash Folder", "Temporary Items",           /* macOS */
    "Thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini",            /* Windows */
    "$RECYCLE.BIN", "RECYCLER", "System Volume Information",
    "@eaDir", "#recycle", "#snapshot", "@Recycle", "@Recently-Snapshot",       /* network storage */
    "lost+found", "__pycache__",
};
/* clang-format on */

/* A stream of a file, stored as a file of its own. */
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
