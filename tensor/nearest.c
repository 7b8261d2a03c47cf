/* nearest.c - finds the known name that a mistyped one probably meant.
 *
 * Spelling comes first: the distance counts insertions, deletions, replacements and exchanges of
 * neighbours, relative to the longer name. Shared words count only if no name is spelled
 * similarly. */
#include <ctype.h>
#include <string.h>
#include <tapegrad/nearest.h>

enum {
    LONGEST = sizeof(((tp_nearest *)0)->name) - 1,
    SHORTEST_WORD = 3 /* that can match */
};

static char plain(char c)
{
    return c == '_' ? '-' : (char)tolower((unsigned char)c);
}

static bool same(const char *a, const char *b, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (plain(a[i]) != plain(b[i])) return false;
    return true;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The optimal string alignment distance of a [m] and b [n], keeping three rows of the table. */
static size_t distance(const char *a, size_t m, const char *b, size_t n)
{
    size_t rows[3][LONGEST + 1];
    for (size_t k = 0; k <= n; k++) rows[0][k] = k;
    for (size_t i = 1; i <= m; i++) {
        size_t *now = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3], *higher = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t k = 1; k <= n; k++) {
            const bool equal = same(a + i - 1, b + k - 1, 1);
            now[k] = least(above[k - 1] + !equal, least(above[k], now[k - 1]) + 1);
            if (i > 1 && k > 1 && same(a + i - 1, b + k - 2, 1) && same(a + i - 2, b + k - 1, 1))
                now[k] = least(now[k], higher[k - 2] + 1);
        }
    }
    return rows[m % 3][n];
}

/* Moves *at past the next word of a name; returns its length, 0 at the end. */
static size_t next_word(const char **at, const char *end)
{
    const char *word = *at;
    while (word < end && plain(*word) == '-') word++;
    size_t length = 0;
    while (word + length < end && plain(word[length]) != '-') length++;
    *at = word + length;
    return length;
}

static bool share_a_word(const char *a, size_t m, const char *b, size_t n)
{
    size_t p, q;
    for (const char *s = a; (p = next_word(&s, a + m)) > 0;)
        for (const char *t = b; (q = next_word(&t, b + n)) > 0;)
            if (p == q && p >= SHORTEST_WORD && same(s - p, t - q, p)) return true;
    return false;
}

tp_nearest tp_nearest_to(const char *typed)
{
    return (tp_nearest){ .typed = typed, .cost = 2 };
}

static void try_one(tp_nearest *best, const char *name, size_t n)
{
    const char *typed = best->typed;
    const size_t m = strlen(typed), longer = m > n ? m : n;
    if (m == 0 || n == 0 || longer > LONGEST) return;
    const size_t d = distance(typed, m, name, n);
    const bool begins = m >= SHORTEST_WORD && m < n && same(typed, name, m);
    double cost = (double)d / (double)longer;
    if (d > (longer + 1) / 3) {
        if (!begins && !share_a_word(typed, m, name, n)) return;
        cost += 1;
    }
    if (cost >= best->cost) return;
    best->cost = cost;
    memcpy(best->name, name, n);
    best->name[n] = '\0';
}

void tp_nearest_try(tp_nearest *n, const char *names)
{
    while (n && names && *names) {
        const size_t length = strcspn(names, " |");
        try_one(n, names, length);
        names += length + (names[length] != '\0');
    }
}
