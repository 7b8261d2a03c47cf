/* json_walk.h - reads a JSON text of any length one element of its outer arrays at a time, without
 * a tree of the whole text: jansson's tree of COCO's training annotations takes six times the
 * file's memory. */
#ifndef TP_JSON_WALK_H
#define TP_JSON_WALK_H

#include <jansson.h>
#include <stdarg.h>
#include <tapegrad/base.h>

/* A text, the current place in it, and room for the reason of a failure. Begin with why[0] = 0. */
typedef struct tp_json_walk {
    const char *name; /* of the file, for messages */
    const char *bytes, *end, *at;
    char *why;
    size_t size;
    int64_t lines, offset; /* of the file before `bytes`; 0 if that is the whole file */
} tp_json_walk;

/* An element: its place, for messages, and its value, valid until the function returns. */
typedef struct tp_json_item {
    tp_json_walk *walk;
    const char *kind; /* "annotation" */
    int64_t index;    /* from 1       */
    const char *at;
    json_t *value;
} tp_json_item;

/* False, with the reason in why: the text is not JSON, or a callback returned false. */

/* Begins a file: skips UTF-8's byte order mark and refuses other encodings by name. */
bool tp__json_begin(tp_json_walk *w);
/* Calls f for every element of the array here. */
bool tp__json_array(tp_json_walk *w, const char *kind, bool (*f)(void *env, tp_json_item *item),
                    void *env);
/* Calls f for every member of the object here; f reads its value with these functions. */
bool tp__json_object(tp_json_walk *w, bool (*f)(void *env, tp_json_walk *w, const char *key),
                     void *env);
bool tp__json_skip(tp_json_walk *w);
/* Returns the value here, to be released; NULL: failed. Its tree takes unbounded memory. */
json_t *tp__json_value(tp_json_walk *w);
/* Checks that only white space follows. */
bool tp__json_end(tp_json_walk *w);

/* Read members of an object. Missing or null optional ones leave *x unchanged. */
bool tp__item_int(tp_json_item *i, const char *key, bool optional, int64_t *x);
bool tp__item_flag(tp_json_item *i, const char *key, bool *x); /* optional: 0, 1, false, true */
bool tp__item_number(tp_json_item *i, const char *key, double *x);
bool tp__item_numbers(tp_json_item *i, const char *key, double *x, size_t n);
const char *tp__item_text(const tp_json_item *i, const char *key); /* "" if not a string */

/* Returns the line, from 1, of a position in a text. */
int64_t tp__line_of(const char *bytes, const char *at);
/* Fails the walk; the message names file, item, id, byte and line. Returns false. */
bool tp__item_fail(tp_json_item *i, const char *fmt, ...) TP_PRINTF(2, 3);
bool tp__json_fail(tp_json_walk *w, const char *at, const char *fmt, ...) TP_PRINTF(3, 4);

#endif
