/* parity_bpe.c - reference tables of byte-pair encoding: texts with their ids, and classes of characters.
 *
 * The vocabulary is in the folder of the table unless --vocab names another. */
#include <stdlib.h>
#include <string.h>

#include "parity_tables.h"

enum { CHARACTERS = 0x110000 };

static void open_vocabulary(par_rows *t)
{
    char folder[1200] = ".";
    const char *slash = strrchr(t->path, '/');
    if (slash) snprintf(folder, sizeof folder, "%.*s", (int)(slash - t->path), t->path);
    t->words = tp_bpe_open(t->vocab ? t->vocab : folder);
    t->coder = tp_bpe_coder_new(t->words);
    if (!tp_bpe_ok(t->words)) par_row_fails(t, "%s", tp_bpe_why(t->words));
    if (!t->coder) par_row_fails(t, "out of memory");
}

static void expect_ids(par_rows *t, const int32_t *ids, int64_t n)
{
    const char *at = tp_table_cell(t->X, t->row, 2);
    const long long wanted = strtoll(tp_table_cell(t->X, t->row, 1), NULL, 10);
    if (n != wanted) par_row_fails(t, "%lld ids, not %lld", (long long)n, wanted);
    for (int64_t i = 0; i < n && !t->failed; i++) {
        char *end;
        const long id = strtol(at, &end, 10);
        if (end == at || id != ids[i])
            par_row_fails(t, "id %lld is %d, not '%.10s'", (long long)i + 1, ids[i], at);
        at = end;
    }
    if (!t->failed && at[strspn(at, " ")]) par_row_fails(t, "there are more ids: '%.20s'", at);
}

void par_run_text(par_rows *t)
{
    size_t n, bytes;
    int64_t count;
    if (!t->words) open_vocabulary(t);
    char *text = t->failed ? NULL : (char *)par_row_bytes(t, 0, &n);
    const int32_t *ids = text ? tp_bpe_encode(t->coder, text, n, &count) : NULL;
    if (!ids) {
        par_row_fails(t, "the text cannot be encoded");
    } else {
        expect_ids(t, ids, count);
        const char *back = tp_bpe_decode(t->coder, ids, count, 0, &bytes);
        if (!back || bytes != n || memcmp(back, text, n) != 0)
            par_row_fails(t, "decoding gives '%.200s'", back ? back : "nothing");
    }
    free(text);
}

/* ---- classes ---- */

static bool count_words(void *env, const char *at, size_t length)
{
    (void)at;
    (void)length;
    ++*(int *)env;
    return true;
}

/* Do the letter `first` and a character make one word? */
static bool joins(char first, const char *character, size_t n)
{
    char text[8] = { first };
    int words = 0;
    memcpy(text + 1, character, n);
    tp_bpe_words(text, n + 1, count_words, &words);
    return words == 1;
}

/* 'L', 'N', 'S' or 0, as the words of texts show it. */
static char class_of(uint32_t c)
{
    const int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    const uint8_t lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    char text[4];
    for (int i = n - 1; i > 0; i--, c >>= 6) text[i] = (char)(0x80 | (c & 0x3f));
    text[0] = (char)(lead[n] | c);
    return joins('a', text, (size_t)n)   ? 'L'
           : joins('1', text, (size_t)n) ? 'N'
           : joins('!', text, (size_t)n) ? 0
                                         : 'S';
}

void par_run_class(par_rows *t)
{
    const char *class = tp_table_cell(t->X, t->row, 0);
    const unsigned long first = strtoul(tp_table_cell(t->X, t->row, 1), NULL, 16),
                        last = strtoul(tp_table_cell(t->X, t->row, 2), NULL, 16);
    if (!t->classes && !(t->classes = calloc(CHARACTERS, 1))) {
        par_row_fails(t, "out of memory");
        return;
    }
    if (!strchr("LNS", *class) || first > last || last >= CHARACTERS) {
        par_row_fails(t, "%.20s %lx-%lx is not a class with a range", class, first, last);
        return;
    }
    memset(t->classes + first, *class, last - first + 1);
    if (t->row + 1 < tp_table_rows(t->X)) return;
    for (uint32_t c = 0; c < CHARACTERS; c++)
        if ((c < 0xd800 || c >= 0xe000) && class_of(c) != (char)t->classes[c])
            par_row_fails(t, "the class of U+%04X is '%c', not '%c'", c, class_of(c),
                          t->classes[c]);
}

void par_end_texts(par_rows *t)
{
    tp_bpe_coder_free(t->coder);
    tp_bpe_close(t->words);
    free(t->classes);
}
