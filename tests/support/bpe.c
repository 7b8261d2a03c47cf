/* bpe.c - writes and compares small BPE vocabularies. */
#include "support/bpe.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int bpe_put_bytes(char *to, int first)
{
    for (int c = 0; c <= 0x143; c++) {
        const bool direct = (c >= 33 && c <= 126) || (c >= 161 && c <= 255 && c != 173);
        if (!direct && c < 256) continue;
        if (c == '"' || c == '\\')
            to += sprintf(to, "\"\\%c\": %d, ", c, first++);
        else
            to += sprintf(to, "\"\\u%04x\": %d, ", c, first++);
    }
    return first;
}

void bpe_small(char *to, const char *tokens)
{
    char word[64];
    strcpy(to, "{\"<s>\": 0, \"<pad>\": 1, \"</s>\": 2, \"<unk>\": 3, ");
    int id = bpe_put_bytes(to + strlen(to), 4), n;
    for (; sscanf(tokens, "%63s%n", word, &n) == 1; tokens += n)
        sprintf(to + strlen(to), "\"%s\": %d, ", word, id++);
    sprintf(to + strlen(to), "\"<mask>\": %d}", id);
}

void bpe_join(char *to, const char *a, const char *b)
{
    while (*a) *to++ = *a++;
    while (*b) *to++ = *b++;
    *to = '\0';
}

void bpe_expect_same(const tp_bpe *a, const tp_bpe *b)
{
    cr_assert(tp_bpe_ok(a) && tp_bpe_ok(b), "%s%s", tp_bpe_why(a), tp_bpe_why(b));
    char *x = tp_bpe_vocab_text(a), *y = tp_bpe_vocab_text(b);
    cr_expect_str_eq(x, y);
    free(x), free(y);
    x = tp_bpe_merges_text(a), y = tp_bpe_merges_text(b);
    cr_expect_str_eq(x, y);
    free(x), free(y);
}
