/* dictionary.c - dictionaries in text files, as fairseq writes them:
 *
 *     32 13519824          a line for each symbol, from id 4 on: name, blank, count
 *     101 8001205
 *     madeupword0000 0     fillers, at the end
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"
#include "vocab.h"
#include <tapegrad/file.h>

enum { MOST = 1 << 20 }; /* bytes of a file */

/* The byte that a name of n characters stands for, or -1. */
static int byte_of(const char *name, size_t n)
{
    int byte = 0;
    if (n == 1 && (name[0] < '0' || name[0] > '9'))
        return name[0] == '_' ? ' ' : (unsigned char)name[0];
    for (size_t i = 0; i < n && byte < 256; i++)
        byte = name[i] < '0' || name[i] > '9' ? 256 : 10 * byte + (name[i] - '0');
    return n > 0 && byte < 256 ? byte : -1;
}

/* Adds the symbol of a line; NULL, or what is wrong with it. */
static const char *add_line(tp_vocab *v, const char *line, bool *filled)
{
    const size_t n = strcspn(line, " \t");
    char *end = NULL;
    const long long count = line[n] ? strtoll(line + n, &end, 10) : 0;
    if (count < 0 || (end && *end)) return "after the symbol there is no count";
    if (strncmp(line, "madeupword", 10) == 0) {
        *filled = true;
        return NULL;
    }
    const int byte = byte_of(line, n);
    if (byte < 0) return "the symbol is neither a byte's number nor one character";
    if (*filled) return "a symbol follows the fillers";
    if (v->size >= 512 || !tp__vocab_add(v, byte)) return "the symbol has an id already";
    v->count[v->size - 1] = count;
    return NULL;
}

/* text ends with a zero byte and is written to. */
static bool parse(tp_vocab *v, char *text, tp_text_style style, char *why, size_t size)
{
    bool filled = false;
    if (style == TP_TEXT_AUTO)
        style = text[0] >= '0' && text[0] <= '9' ? TP_TEXT_ENWIK8 : TP_TEXT_TEXT8;
    tp__vocab_start(v, style);
    const int64_t specials = v->size;
    for (int number = 1; *text; number++) {
        char *line = text, *end = text + strcspn(text, "\n");
        text = *end ? end + 1 : end;
        *end = '\0';
        if (end > line && end[-1] == '\r') end[-1] = '\0';
        const char *wrong = *line ? add_line(v, line, &filled) : NULL;
        if (!wrong) continue;
        snprintf(why, size, "line %d ('%.40s'): %s", number, line, wrong);
        return false;
    }
    const bool any = v->size > specials;
    if (!any) snprintf(why, size, "it has no symbols");
    tp__vocab_finish(v);
    return any;
}

bool tp_vocab_load(tp_vocab *v, const char *path, tp_text_style style, char *why, size_t size)
{
    if (!v) {
        if (why) snprintf(why, size, "vocab_load: NULL was given in place of a vocabulary");
        return false;
    }
    tp_blob b;
    char reason[512];
    bool done = false;
    const bool loaded = tp__blob_load(&b, path, MOST + 1, reason, sizeof reason);
    const char *begin = (const char *)b.bytes;
    const bool is_text = loaded && tp_file_text(&begin, &b.size, reason, sizeof reason);
    char *text = is_text ? malloc(b.size + 1) : NULL;
    if (is_text && !text) snprintf(reason, sizeof reason, "out of memory");
    if (text) {
        memcpy(text, begin, b.size);
        text[b.size] = '\0';
    }
    if (text && b.size > MOST)
        snprintf(reason, sizeof reason, "it has more than %d bytes, so it is no dictionary", MOST);
    else if (text)
        done = parse(v, text, style, reason, sizeof reason);
    if (!done) snprintf(why, size, "dictionary %.480s: %s", path, reason);
    free(text);
    tp__blob_free(&b);
    return done;
}
