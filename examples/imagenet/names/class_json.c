/* class_json.c - prints a class as JSON. */
#include "class_json.h"

json_t *class_as_json(const class_names *n, int64_t i)
{
    const class_words w = class_words_at(n, i);
    json_t *object = json_pack("{s:I,s:o}", "class", (json_int_t)i, "name", text_as_json(w.name));
    if (!w.wnid[0] || json_object_set_new(object, "wnid", json_string(w.wnid)) == 0) return object;
    json_decref(object);
    return NULL;
}
