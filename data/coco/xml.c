/* xml.c - reads XML's elements and texts, as far as annotations need them. */
#include "xml.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"
#include "text/bpe.h"

static bool fail(tp_xml *x, const char *reason)
{
    if (!x->why[0]) snprintf(x->why, sizeof x->why, "%s", reason);
    return false;
}

/* Does the text continue with this? */
static bool begins(const tp_xml *x, const char *at, const char *with)
{
    const size_t n = strlen(with);
    return (size_t)(x->end - at) >= n && memcmp(at, with, n) == 0;
}

/* Returns the place after the next `stop`, or the end. */
static const char *behind(const tp_xml *x, const char *at, const char *stop)
{
    for (; at < x->end; at++)
        if (begins(x, at, stop)) return at + strlen(stop);
    return x->end;
}

/* Skips the comment or declaration that begins here; returns `at` if none does. */
static const char *past_hidden(const tp_xml *x, const char *at)
{
    if (begins(x, at, "<!--")) return behind(x, at + 4, "-->");
    if (begins(x, at, "<?")) return behind(x, at, "?>");
    if (begins(x, at, "<!") && !begins(x, at, "<![CDATA[")) return behind(x, at, ">");
    return at;
}

/* Returns the '<' of the next tag, or the end. */
static const char *next_tag(const tp_xml *x, const char *at)
{
    while (at < x->end) {
        const char *past = past_hidden(x, at);
        if (past > at)
            at = past;
        else if (begins(x, at, "<![CDATA["))
            at = behind(x, at, "]]>");
        else if (*at == '<')
            return at;
        else
            at++;
    }
    return x->end;
}

/* Returns the '>' of a tag; quoted values may contain others. */
static const char *end_of_tag(const tp_xml *x, const char *at)
{
    char quote = '\0';
    for (; at < x->end; at++) {
        if (quote)
            quote = *at == quote ? '\0' : quote;
        else if (*at == '"' || *at == '\'')
            quote = *at;
        else if (*at == '>')
            break;
    }
    return at;
}

static void pop(tp_xml *x)
{
    x->depth--;
    x->closed = x->empty = false;
}

static bool open_tag(tp_xml *x, const char *name, size_t n)
{
    if (n == 0) return fail(x, "a tag has no name");
    if (x->depth < TP_XML_DEPTH)
        snprintf(x->name[x->depth], TP_XML_NAME, "%.*s", n < TP_XML_NAME ? (int)n : TP_XML_NAME - 1,
                 name);
    x->depth++;
    return true;
}

static bool close_tag(tp_xml *x, const char *name, size_t n)
{
    const char *open = x->depth > 0 && x->depth <= TP_XML_DEPTH ? x->name[x->depth - 1] : NULL;
    const size_t compared = n < TP_XML_NAME ? n : TP_XML_NAME - 1;
    if (x->depth == 0) return fail(x, "a tag closes nothing");
    if (open && (strlen(open) != compared || memcmp(open, name, compared) != 0)) {
        snprintf(x->why, sizeof x->why, "<%s> is not closed", open);
        return false;
    }
    x->closed = true;
    return true;
}

bool tp__xml_next(tp_xml *x)
{
    if (x->why[0]) return false;
    if (x->closed) pop(x);
    x->closing = x->empty;
    if (x->empty) return x->closed = true;
    const char *from = next_tag(x, x->at), *to = end_of_tag(x, from);
    if (to == x->end) {
        x->at = x->end;
        if (x->depth == 0) return false;
        if (x->depth <= TP_XML_DEPTH)
            snprintf(x->why, sizeof x->why, "<%s> is not closed", x->name[x->depth - 1]);
        return fail(x, "a tag is not closed");
    }
    x->closing = from[1] == '/';
    x->empty = !x->closing && to[-1] == '/';
    const char *name = from + (x->closing ? 2 : 1);
    size_t n = 0;
    while (name + n < to && name[n] != '/' && !tp__is_white(name[n])) n++;
    x->at = x->text = to + 1;
    return x->closing ? close_tag(x, name, n) : open_tag(x, name, n);
}

bool tp__xml_is(const tp_xml *x, const char *path)
{
    for (int i = 0; i < x->depth && i < TP_XML_DEPTH; i++) {
        const size_t n = strcspn(path, "/");
        if (strlen(x->name[i]) != n || memcmp(x->name[i], path, n) != 0) return false;
        path += n;
        if (!*path) return i + 1 == x->depth;
        path++;
    }
    return false;
}

/* ---- texts ---- */

/* Returns the character of an entity (n bytes, without & and ;), or 0. */
static int32_t character_of(const char *name, size_t n)
{
    static const struct {
        const char *name;
        char character;
    } known[] = { { "amp", '&' }, { "lt", '<' }, { "gt", '>' }, { "quot", '"' }, { "apos", '\'' } };
    const int base = n > 1 && name[1] == 'x' ? 16 : 10;
    char digits[12], *end;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == n && memcmp(known[i].name, name, n) == 0)
            return known[i].character;
    if (n < 2 || n > 10 || name[0] != '#') return 0;
    snprintf(digits, sizeof digits, "%.*s", (int)n - (base == 16 ? 2 : 1),
             name + (base == 16 ? 2 : 1));
    const long character = strtol(digits, &end, base);
    const bool surrogate = character >= 0xd800 && character < 0xe000;
    if (!digits[0] || *end || character < 1 || character > 0x10ffff || surrogate) return 0;
    return (int32_t)character;
}

/* Replaces the entity at *at, which begins with '&', with its character in UTF-8. */
static bool replace(tp_xml *x, const char **at, const char *end, char *to, size_t *n)
{
    const char *stop = memchr(*at, ';', (size_t)(end - *at));
    const int32_t character = stop ? character_of(*at + 1, (size_t)(stop - *at - 1)) : 0;
    if (character == 0) return fail(x, "'&' begins no entity of XML: write &amp;");
    *n += (size_t)tp__utf8_write(character, to + *n);
    *at = stop + 1;
    return true;
}

bool tp__xml_text(tp_xml *x, char *to, size_t size)
{
    const char *at = x->text, *end = x->closing || x->empty ? x->text : next_tag(x, x->text);
    size_t n = 0;
    while (at < end) {
        const char *past = past_hidden(x, at);
        const bool verbatim = begins(x, at, "<![CDATA[");
        if (verbatim) past = behind(x, at, "]]>");
        const size_t length = verbatim && past - at >= 12 ? (size_t)(past - at) - 12 : 0;
        if (n + length + 5 > size) return fail(x, "the text is too long");
        if (past > at) {
            if (length) memcpy(to + n, at + 9, length);
            n += length;
            at = past;
        } else if (*at == '&') {
            if (!replace(x, &at, end, to, &n)) return false;
        } else {
            if (n > 0 || !tp__is_white(*at)) to[n++] = *at;
            at++;
        }
    }
    while (n > 0 && tp__is_white(to[n - 1])) n--;
    to[n] = '\0';
    return true;
}
