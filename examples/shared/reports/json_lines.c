/* json_lines.c - prints and writes JSON objects. */
#include "json_lines.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

#include "plain_text.h"

json_t *text_as_json(const char *text)
{
    char *utf8 = plain_utf8(text);
    json_t *string = utf8 ? json_string(utf8) : NULL;
    free(utf8);
    return string;
}

json_t *number_as_json(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

bool print_json_line(FILE *out, json_t *line)
{
    const bool done = line && json_dumpf(line, out, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0;
    json_decref(line);
    if (done) fputc('\n', out);
    return done;
}

bool json_replace(const char *path, json_t *all, size_t flags, char *why, size_t size)
{
    char *text = all ? json_dumps(all, flags) : NULL;
    json_decref(all);
    if (!text) snprintf(why, size, "out of memory");
    const bool done = text && tp_file_replace(path, text, strlen(text), why, size);
    free(text);
    return done;
}
