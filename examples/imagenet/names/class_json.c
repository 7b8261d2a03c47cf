/* class_json.c - see the header. */
#include "class_json.h"

#include <math.h>
#include <stdlib.h>

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

json_t *class_as_json(const class_names *n, int64_t i)
{
    const class_words w = class_words_at(n, i);
    json_t *object = json_pack("{s:I,s:o}", "class", (json_int_t)i, "name", text_as_json(w.name));
    if (!w.wnid[0] || json_object_set_new(object, "wnid", json_string(w.wnid)) == 0) return object;
    json_decref(object);
    return NULL;
}

bool print_json_line(FILE *out, json_t *line)
{
    const bool done = line && json_dumpf(line, out, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0;
    json_decref(line);
    if (done) fputc('\n', out);
    return done;
}
