/* vocab.c - the dictionary of a language model over bytes: the token of each byte.
 *
 *     0 <s>   1 <pad>   2 </s>   3 <unk>   4.. symbols by falling count   fillers to 8 k
 *
 * Ties are broken by the byte order of the symbols' names, as in the official dictionaries: a byte
 * is named by its decimal number ("10" < "9"), in text8 by the character itself, with "_" for the
 * blank. Newline is the end-of-line token, not a symbol.
 *
 * Transformer-XL's code has symbols only, ties by first occurrence, and no newline. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vocab.h"

enum { END = 2, UNKNOWN = 3, SPECIALS = 4 };

typedef struct symbol {
    int64_t count, first; /* first: where the text has it, for the ties of TP_TEXT_TXL */
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

/* The number of ids before the first symbol. */
static int specials(tp_text_style style)
{
    return style == TP_TEXT_BYTES || style == TP_TEXT_TXL ? 0 : SPECIALS;
}

void tp__vocab_start(tp_vocab *v, tp_text_style style)
{
    const bool bytes = style == TP_TEXT_BYTES;
    const int none = style == TP_TEXT_TXL ? -1 : UNKNOWN;
    *v = (tp_vocab){ .style = style, .size = bytes ? 256 : specials(style) };
    for (int i = 0; i < 512; i++) v->symbol[i] = (int16_t)(bytes && i < 256 ? i : -1);
    for (int b = 0; b < 256; b++) v->id[b] = (int16_t)(bytes ? b : none);
    if (specials(style)) v->id['\n'] = END;
}

bool tp__vocab_add(tp_vocab *v, int byte)
{
    const bool txl = v->style == TP_TEXT_TXL;
    if (v->id[byte] != (txl ? -1 : UNKNOWN) || (txl && byte == '\n')) return false;
    v->symbol[v->size] = (int16_t)byte;
    v->id[byte] = (int16_t)v->size++;
    if (v->style == TP_TEXT_TEXT8 && byte == ' ') v->id['_'] = v->id[' '];
    return true;
}

void tp__vocab_finish(tp_vocab *v)
{
    if (specials(v->style)) v->size = (v->size + 7) / 8 * 8;
}

bool tp_vocab_knows(const tp_vocab *v, uint8_t byte)
{
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

static bool blank(uint8_t c)
{
    return c == ' ' || c == '\n';
}

void tp__strip_blanks(const uint8_t **text, int64_t *n)
{
    while (*n > 0 && blank((*text)[0])) (*text)++, (*n)--;
    while (*n > 0 && blank((*text)[*n - 1])) (*n)--;
}

static void count_bytes(int64_t count[256], const uint8_t *text, int64_t n)
{
    memset(count, 0, 256 * sizeof *count);
    for (int64_t i = 0; i < n; i++) count[text[i]]++;
}

/* Sorts the symbols of the text by their ids; returns how many there are. */
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
    tp__vocab_start(v, style);
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
        tp__vocab_add(v, found[i].byte);
    }
    tp__vocab_finish(v);
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
    tp__vocab_start(v, (tp_text_style)style);
    s += k + 1;
    if (style == TP_TEXT_BYTES) return *s == '\0';
    while (*s) {
        char *end;
        if (*s < '0' || *s > '9') return false;
        const long byte = strtol(s, &end, 10);
        if (byte > 255 || !tp__vocab_add(v, (int)byte)) return false;
        if (*end == ',' && !end[1]) return false;
        if (*end && *end != ',') return false;
        s = *end ? end + 1 : end;
    }
    tp__vocab_finish(v);
    return true;
}
