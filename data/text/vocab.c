/* vocab.c - the dictionary of a language model over bytes, a token for each byte: built from a
 * text, printed and parsed, and read from text files.
 *
 *     0 <s>   1 <pad>   2 </s>   3 <unk>   4.. symbols by falling count   fillers to 8 k
 *
 * Ties are broken by the byte order of the symbols' names, as in the official dictionaries: a
 * byte's name is its decimal number ("10" < "9"), in text8 the character, with "_" for the blank.
 * Newline is the end-of-line token, not a symbol.
 *
 * Transformer-XL's code has only symbols, breaks ties by first occurrence, and has no newline. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/data.h>

#include "kit.h"
#include "load.h"

enum { END = 2, UNKNOWN = 3, SPECIALS = 4 };

typedef struct symbol {
    int64_t count, first; /* first: position in the text, for the ties of TP_TEXT_TXL */
    uint8_t byte;
    char name[4];
} symbol;

static const char *const style_names[] = {
    [TP_TEXT_AUTO] = "auto",   [TP_TEXT_ENWIK8] = "enwik8", [TP_TEXT_TEXT8] = "text8",
    [TP_TEXT_BYTES] = "bytes", [TP_TEXT_TXL] = "txl",
};

static int by_count_then_name(const void *pa, const void *pb)
{
    const symbol *a = pa, *b = pb;
    if (a->count != b->count) return a->count < b->count ? 1 : -1;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Returns the number of ids before the first symbol. */
static int specials(tp_text_style style)
{
    return style == TP_TEXT_BYTES || style == TP_TEXT_TXL ? 0 : SPECIALS;
}

/* Starts a dictionary without symbols. */
static void start(tp_vocab *v, tp_text_style style)
{
    const bool bytes = style == TP_TEXT_BYTES;
    const int none = style == TP_TEXT_TXL ? -1 : UNKNOWN;
    *v = (tp_vocab){ .style = style, .size = bytes ? 256 : specials(style) };
    for (int i = 0; i < 512; i++) v->symbol[i] = (int16_t)(bytes && i < 256 ? i : -1);
    for (int b = 0; b < 256; b++) v->id[b] = (int16_t)(bytes ? b : none);
    if (specials(style)) v->id['\n'] = END;
}

/* Adds the next symbol. False: the byte already has an id. */
static bool add(tp_vocab *v, int byte)
{
    const bool txl = v->style == TP_TEXT_TXL;
    if (v->id[byte] != (txl ? -1 : UNKNOWN) || (txl && byte == '\n')) return false;
    v->symbol[v->size] = (int16_t)byte;
    v->id[byte] = (int16_t)v->size++;
    if (v->style == TP_TEXT_TEXT8 && byte == ' ') v->id['_'] = v->id[' '];
    return true;
}

/* Adds the fillers. */
static void finish(tp_vocab *v)
{
    if (specials(v->style)) v->size = (v->size + 7) / 8 * 8;
}

bool tp_vocab_knows(const tp_vocab *v, uint8_t byte)
{
    if (!v) return false;
    const int16_t id = v->id[byte];
    if (v->style == TP_TEXT_TXL) return id >= 0 || byte == '\n';
    return v->style == TP_TEXT_BYTES || id != UNKNOWN;
}

static bool looks_like_text8(const int64_t count[256])
{
    for (int b = 0; b < 256; b++)
        if (count[b] && b != ' ' && (b < 'a' || b > 'z')) return false;
    return true;
}

static void count_bytes(int64_t count[256], const uint8_t *text, int64_t n)
{
    memset(count, 0, 256 * sizeof *count);
    for (int64_t i = 0; i < n; i++) count[text[i]]++;
}

/* Sorts the symbols of the text by id; returns their number. */
static size_t rank(symbol found[256], tp_text_style style, const int64_t count[256],
                   const uint8_t *text, int64_t n)
{
    size_t kinds = 0;
    for (int b = 0; b < 256; b++) {
        if (!count[b] || b == '\n') continue;
        symbol *s = &found[kinds++];
        *s = (symbol){ .count = count[b], .byte = (uint8_t)b };
        if (style == TP_TEXT_TXL)
            s->first = (const uint8_t *)memchr(text, b, (size_t)n) - text;
        else if (style == TP_TEXT_TEXT8)
            s->name[0] = (char)(b == ' ' ? '_' : b);
        else
            snprintf(s->name, sizeof s->name, "%d", s->byte);
    }
    qsort(found, kinds, sizeof found[0], by_count_then_name);
    return kinds;
}

void tp_vocab_build(tp_vocab *v, tp_text_style style, const uint8_t *train, int64_t n)
{
    if (!v) return;
    int64_t count[256];
    symbol found[256];
    count_bytes(count, train, n);
    if (style == TP_TEXT_AUTO) style = looks_like_text8(count) ? TP_TEXT_TEXT8 : TP_TEXT_ENWIK8;
    start(v, style);
    if (style == TP_TEXT_BYTES) {
        memcpy(v->count, count, sizeof count);
        return;
    }
    if (style == TP_TEXT_TEXT8) {
        tp__strip_blanks(&train, &n);
        count_bytes(count, train, n);
        count[' '] += count['_'];
        count['_'] = 0;
    }
    const size_t kinds = rank(found, style, count, train, n);
    for (size_t i = 0; i < kinds; i++) {
        v->count[v->size] = found[i].count;
        add(v, found[i].byte);
    }
    finish(v);
}

bool tp_vocab_print(const tp_vocab *v, char *buf, size_t size)
{
    if (!v) return false;
    int n = snprintf(buf, size, "%s:", style_names[v->style]);
    const int first = specials(v->style);
    if (v->style != TP_TEXT_BYTES)
        for (int i = first; i < v->size && v->symbol[i] >= 0 && n >= 0 && (size_t)n < size; i++)
            n += snprintf(buf + n, size - (size_t)n, "%s%d", i > first ? "," : "", v->symbol[i]);
    return n >= 0 && (size_t)n < size;
}

bool tp_vocab_parse(tp_vocab *v, const char *s)
{
    if (!v) return false;
    int style = TP_TEXT_ENWIK8;
    size_t k = 0;
    for (; style <= TP_TEXT_TXL; style++) {
        k = strlen(style_names[style]);
        if (strncmp(s, style_names[style], k) == 0 && s[k] == ':') break;
    }
    if (style > TP_TEXT_TXL) return false;
    start(v, (tp_text_style)style);
    s += k + 1;
    if (style == TP_TEXT_BYTES) return *s == '\0';
    while (*s) {
        char *end;
        if (*s < '0' || *s > '9') return false;
        const long byte = strtol(s, &end, 10);
        if (byte > 255 || !add(v, (int)byte)) return false;
        if (*end == ',' && !end[1]) return false;
        if (*end && *end != ',') return false;
        s = *end ? end + 1 : end;
    }
    finish(v);
    return true;
}

/* ---- text files, as fairseq writes them ----
 *
 *     32 13519824          a line for each symbol, from id 4 on: name, blank, count
 *     101 8001205
 *     madeupword0000 0     fillers, at the end */

enum { MOST = 1 << 20 }; /* bytes of a file */

/* Returns the byte that a name of n characters represents, or -1. */
static int byte_of(const char *name, size_t n)
{
    int byte = 0;
    if (n == 1 && (name[0] < '0' || name[0] > '9'))
        return name[0] == '_' ? ' ' : (unsigned char)name[0];
    for (size_t i = 0; i < n && byte < 256; i++)
        byte = name[i] < '0' || name[i] > '9' ? 256 : 10 * byte + (name[i] - '0');
    return n > 0 && byte < 256 ? byte : -1;
}

/* Adds the symbol of a line; returns NULL or an error. */
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
    if (v->size >= 512 || !add(v, byte)) return "the symbol has an id already";
    v->count[v->size - 1] = count;
    return NULL;
}

/* Parses text, which ends with a zero byte and is overwritten. */
static bool parse(tp_vocab *v, char *text, tp_text_style style, char *why, size_t size)
{
    bool filled = false;
    if (style == TP_TEXT_AUTO)
        style = text[0] >= '0' && text[0] <= '9' ? TP_TEXT_ENWIK8 : TP_TEXT_TEXT8;
    start(v, style);
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
    finish(v);
    return any;
}

bool tp_vocab_load(tp_vocab *v, const char *path, tp_text_style style, char *why, size_t size)
{
    if (!v) {
        if (why) snprintf(why, size, "vocab_load: NULL was given in place of a vocabulary");
        return false;
    }
    tp_blob b = { 0 };
    char reason[512], *text;
    size_t n;
    const bool loaded = tp__blob_text(&b, path, MOST, &text, &n, reason, sizeof reason);
    const bool done = loaded && parse(v, text, style, reason, sizeof reason);
    if (!done) snprintf(why, size, "dictionary %.480s%s%s", path, loaded ? ": " : "", reason);
    tp__blob_free(&b);
    return done;
}
