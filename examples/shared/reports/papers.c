/* papers.c - the rows of docs/papers/PAPER.tsv, which examples/CMakeLists.txt embeds. */
#include "papers.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/nearest.h>

extern const char tp__paper_transformer_ls_tsv[], tp__paper_vit_lsla_tsv[], tp__paper_vil_tsv[];

static const struct paper {
    const char *name, *rows;
} papers[] = {
    { "Transformer-LS", tp__paper_transformer_ls_tsv },
    { "ViT-LSLA", tp__paper_vit_lsla_tsv },
    { "ViL", tp__paper_vil_tsv },
};

enum { PAPERS = sizeof papers / sizeof *papers };

const char *paper_name_at(int i)
{
    return i < PAPERS ? papers[i].name : NULL;
}

/* ---- rows ---- */

/* The columns of a paper's next line, the first of which has their names; false after the last. */
static bool next_row(const char **at, text_part column[PAPER_COLUMNS])
{
    if (!**at) return false;
    for (int c = 0; c < PAPER_COLUMNS; c++) {
        const size_t n = strcspn(*at, "\t\n");
        column[c] = (text_part){ *at, (int)n };
        *at += n + 1;
    }
    return true;
}

static bool starts_with(const char *text, text_part word)
{
    int i = 0;
    while (i < word.n && tolower((unsigned char)text[i]) == tolower((unsigned char)word.at[i])) i++;
    return i == word.n;
}

/* True if text has the words, ignoring case, and not as a part of other words or numbers: "Table 2"
 * is neither in "Table 22" nor in "Table 2.5", but "Figure 3" is in "Figure 3a". */
static bool has_words(text_part text, text_part words)
{
    for (int i = 0; i + words.n <= text.n; i++) {
        const char *end = text.at + i + words.n; /* a tab or more text follows */
        if (!starts_with(text.at + i, words)) continue;
        if (i > 0 && isalnum((unsigned char)text.at[i - 1])) continue;
        if (isdigit((unsigned char)end[-1])
                ? !isdigit((unsigned char)*end) && (*end != '.' || !isdigit((unsigned char)end[1]))
                : !isalnum((unsigned char)*end))
            return true;
    }
    return false;
}

/* ---- what is asked for ---- */

/* The next word of a text; "Table", "Figure" and the like take their number along. */
static bool next_words(const char **at, text_part *words)
{
    static const char *const kinds[] = { "Table", "Figure", "Section", "Appendix", "Algorithm" };
    *at += strspn(*at, " ");
    *words = (text_part){ *at, (int)strcspn(*at, " ") };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const bool same = words->n == (int)strlen(kinds[k]) && starts_with(kinds[k], *words);
        const char *number = words->at + words->n + strspn(words->at + words->n, " ");
        if (same) words->n = (int)(number + strcspn(number, " ") - words->at);
    }
    *at += words->n;
    if (words->n > 1 && strchr(",;:", words->at[words->n - 1])) words->n--;
    return words->n > 0;
}

/* Does a row of that paper have all words of the text? A first word that names a paper means that
 * paper. */
static bool is_meant(const struct paper *p, text_part column[PAPER_COLUMNS], const char *text)
{
    text_part words;
    for (bool first = true; next_words(&text, &words); first = false) {
        bool names = false;
        for (int i = 0; first && i < PAPERS; i++)
            names |= words.n == (int)strlen(papers[i].name) && starts_with(papers[i].name, words);
        if (names
                ? !starts_with(p->name, words) || words.n != (int)strlen(p->name)
                : !has_words(column[PAPER_PLACE], words) && !has_words(column[PAPER_ROW], words) &&
                      !has_words(column[PAPER_COMMAND], words))
            return false;
    }
    return true;
}

/* ---- all rows ---- */

int papers_each(const char *text, void (*take)(void *env, const paper_row *r), void *env)
{
    int n = 0;
    for (int i = 0; i < PAPERS; i++) {
        const char *at = papers[i].rows;
        paper_row r = { .paper = papers[i].name };
        next_row(&at, r.column);
        while (next_row(&at, r.column)) {
            if (!is_meant(&papers[i], r.column, text)) continue;
            take(env, &r);
            n++;
        }
    }
    return n;
}

/* "ViL Table 2" for "ViL Table 22": names are compared with _ for blanks, which separate names. */
void papers_complain(const char *text, char *why, size_t size)
{
    char typed[200];
    snprintf(typed, sizeof typed, "%s", text);
    for (char *s = typed; (s = strchr(s, ' '));) *s = '_';
    tp_nearest near = tp_nearest_to(typed);
    for (int i = 0; i < PAPERS; i++) {
        const char *at = papers[i].rows;
        text_part column[PAPER_COLUMNS];
        next_row(&at, column);
        while (next_row(&at, column)) {
            char name[64];
            const int n = (int)strcspn(column[PAPER_PLACE].at, ",\t");
            snprintf(name, sizeof name, "%s_%.*s", papers[i].name, n, column[PAPER_PLACE].at);
            for (char *s = name; (s = strchr(s, ' '));) *s = '_';
            tp_nearest_try(&near, name);
        }
    }
    for (char *s = near.name; (s = strchr(s, '_'));) *s = ' ';
    snprintf(why, size, "no row of a paper has all words of '%.200s'; %s%s%s", text,
             *near.name ? "did you mean '" : "--paper ViL lists a paper", near.name,
             *near.name ? "'?" : "");
}
