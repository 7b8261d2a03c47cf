/* log.c - a log of JSON lines that survives kills: whole lines only, and none from the future of
 * the checkpoint that a run resumes from. */
#include "log.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool fail(run_log *L, const char *what)
{
    snprintf(L->why, sizeof L->why, "log %s: %s: %s", L->path, what, strerror(errno));
    return false;
}

static bool kept(const char *line, int64_t keep)
{
    json_t *object = json_loads(line, 0, NULL);
    const json_t *step = json_object_get(object, "step");
    const bool yes = json_is_integer(step) && json_integer_value(step) <= keep;
    json_decref(object);
    return yes;
}

/* Copies the lines that stay to the new file. */
static void copy_kept(FILE *to, const char *path, int64_t keep)
{
    FILE *from = fopen(path, "r");
    char line[8192];
    if (!from) return;
    while (fgets(line, sizeof line, from))
        if (strchr(line, '\n') && kept(line, keep)) fputs(line, to);
    fclose(from);
}

bool log_open(run_log *L, const char *path, int64_t keep)
{
    char fresh[4200];
    *L = (run_log){ 0 };
    snprintf(L->path, sizeof L->path, "%s", path);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    L->file = fopen(fresh, "w");
    if (!L->file) return fail(L, "cannot be written");
    if (keep > 0) copy_kept(L->file, path, keep);
    if (fflush(L->file) != 0 || rename(fresh, path) != 0) return fail(L, "cannot be written");
    return true;
}

bool log_write(run_log *L, json_t *object)
{
    char *line = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(object);
    if (L->why[0] || !line) return false;
    const bool done =
        fputs(line, L->file) >= 0 && fputc('\n', L->file) != EOF && fflush(L->file) == 0;
    free(line);
    return done || fail(L, "cannot be written");
}

void log_close(run_log *L)
{
    if (L->file) fclose(L->file);
    L->file = NULL;
}

json_t *log_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}
