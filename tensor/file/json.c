/* json.c - parses the JSON of files of tensors: headers, indexes, numbers in metadata.
 *
 * jansson takes up to 300 bytes for a value of two characters. JSON with more values than any list of
 * tensors has is refused before it is parsed: a header has about 13 values for each tensor. */
#include <errno.h>
#include <string.h>

#include "tensor/file/open.h"

enum { MOST_VALUES = 2000000 };

/* The first character after the string that begins at s, or end. */
static const char *skip_string(const char *s, const char *end)
{
    for (s++; s < end && *s != '"'; s++)
        if (*s == '\\' && s + 1 < end) s++;
    return s < end ? s + 1 : end;
}

static bool is_modest(const char *text, size_t length)
{
    const char *const end = text + length;
    int values = 0;
    for (const char *s = text; s < end && values <= MOST_VALUES;) {
        if (*s == '"') {
            s = skip_string(s, end);
            continue;
        }
        values += *s == '{' || *s == '[' || *s == ',';
        s++;
    }
    return values <= MOST_VALUES;
}

typedef struct source {
    const char *at;
    size_t left;
    bool starved; /* memory ran out */
} source;

/* Feeds jansson byte by byte. When memory runs out, its lexer drops characters and continues; only
 * errno shows that, and only until the next number. */
static size_t feed(void *to, size_t room, void *data)
{
    source *s = data;
    s->starved = s->starved || errno == ENOMEM;
    if (s->left == 0 || room == 0 || s->starved) return 0;
    *(char *)to = *s->at++;
    s->left--;
    return 1;
}

json_t *tp__file_json(tp_file *F, const char *text, size_t length, size_t flags, json_error_t *e)
{
    source s = { text, length, false };
    if (!is_modest(text, length)) {
        tp__file_fail(F, TP_E_IO, "its JSON has more than %d values; at most so many are supported",
                      MOST_VALUES);
        return NULL;
    }
    void *locale = tp_c_locale_begin();
    errno = 0;
    json_t *j = json_load_callback(feed, &s, flags, e);
    tp_c_locale_end(locale);
    if (!s.starved && (j || errno != ENOMEM)) return j;
    json_decref(j);
    tp__file_fail(F, TP_E_MEMORY, "out of host memory while reading the header");
    return NULL;
}
