/* parts.c - see the header. */
#include "parts.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <tapegrad/data.h>

int tp__part_of_word(const char *word, size_t n)
{
    static const struct {
        const char *word;
        tp_part part;
    } words[] = { { "train", TP_TRAIN }, { "training", TP_TRAIN }, { "val", TP_VALID },
                  { "valid", TP_VALID }, { "dev", TP_VALID },      { "validation", TP_VALID },
                  { "test", TP_TEST },   { "testing", TP_TEST },   { "eval", TP_TEST } };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].word) == n && strncasecmp(word, words[i].word, n) == 0)
            return (int)words[i].part;
    return TP_NO_PART;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

int tp__part_of_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    int part = TP_NO_PART;
    for (const char *at = slash ? slash + 1 : path; *at;) {
        size_t n = 0;
        while (is_letter(at[n])) n++;
        const int named = tp__part_of_word(at, n);
        if (named != TP_NO_PART) part = named;
        at += n ? n : 1;
    }
    return part;
}
