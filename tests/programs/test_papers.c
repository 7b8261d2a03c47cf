/* test_papers.c - the rows of the papers' tables in docs/papers: none is missing, each has a state,
 * every command is understood, its models exist, and recipes have the printed values. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/folder.h"
#include "support/program.h"

TestSuite(papers, .init = make_folder, .fini = remove_folder, .timeout = 600);

enum { PLACE, ROW, STATE, COMMAND, PRINTED, REMARK, COLUMNS };

typedef struct table {
    char text[100000];
    int n;
    char *row[400][COLUMNS];
} table;

static const char *const papers[] = { "transformer-ls", "vit-lsla", "vil" };
static table tables[3];

/* Cuts a line into columns; false if it has more or fewer. */
static bool cut(char *line, char *column[COLUMNS])
{
    int n = 0;
    for (char *at = line; at && n <= COLUMNS; at = strchr(at, '\t')) {
        if (n > 0) *at++ = '\0';
        if (n < COLUMNS) column[n] = at;
        n++;
    }
    return n == COLUMNS;
}

static void read_tables(void)
{
    for (int p = 0; p < 3; p++) {
        table *t = &tables[p];
        char path[600];
        snprintf(path, sizeof path, "%s/docs/papers/%s.tsv", TP_SOURCE_DIR, papers[p]);
        slurp(path, t->text, sizeof t->text);
        char *line = strtok(t->text, "\n");
        cr_assert_str_eq(line, "place\trow\tstate\tcommand\tprinted\tremark", "%s", path);
        for (t->n = 0; (line = strtok(NULL, "\n")); t->n++)
            cr_assert(t->n < 400 && cut(line, t->row[t->n]), "%s: %s", path, line);
    }
}

/* ---- none is missing ---- */

/* Rows of each table; those of several tables count for all. */
static const struct {
    int paper, table, rows;
} counts[] = {
    { 0, 1, 8 },  { 0, 2, 4 },   { 0, 3, 5 },   { 0, 4, 16 },  { 0, 5, 32 },  { 0, 6, 6 },
    { 0, 7, 2 },  { 0, 8, 3 },   { 0, 9, 8 },   { 0, 10, 7 },  { 0, 11, 12 }, { 0, 12, 2 },
    { 0, 13, 5 }, { 0, 14, 4 },  { 1, 1, 5 },   { 1, 2, 5 },   { 1, 3, 5 },   { 1, 4, 8 },
    { 1, 5, 12 }, { 2, 1, 5 },   { 2, 2, 15 },  { 2, 3, 11 },  { 2, 4, 23 },  { 2, 5, 6 },
    { 2, 6, 14 }, { 2, 7, 16 },  { 2, 8, 9 },   { 2, 9, 16 },  { 2, 10, 16 }, { 2, 11, 3 },
    { 2, 12, 2 }, { 2, 13, 13 }, { 2, 14, 13 }, { 2, 15, 13 },
};

static bool is_of_table(const char *place, int number)
{
    char name[32];
    snprintf(name, sizeof name, "Table %d", number);
    const char *at = strstr(place, name);
    return at && strchr(", ", at[strlen(name)]); /* the end counts, too */
}

Test(papers, every_row_has_an_entry)
{
    read_tables();
    int all = 0;
    for (int p = 0; p < 3; p++) all += tables[p].n;
    cr_expect_eq(all, 381);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const table *t = &tables[counts[i].paper];
        int rows = 0;
        for (int r = 0; r < t->n; r++) rows += is_of_table(t->row[r][PLACE], counts[i].table);
        cr_expect_eq(rows, counts[i].rows, "%s: Table %d has %d rows, not %d",
                     papers[counts[i].paper], counts[i].table, counts[i].rows, rows);
    }
}

Test(papers, every_entry_has_a_state)
{
    read_tables();
    for (int p = 0; p < 3; p++)
        for (int r = 0; r < tables[p].n; r++) {
            char **row = tables[p].row[r];
            const bool command = strcmp(row[STATE], "command") == 0;
            cr_expect(command || strcmp(row[STATE], "quoted") == 0 ||
                          strcmp(row[STATE], "missing") == 0 || strcmp(row[STATE], "drawing") == 0,
                      "%s, %s: %s", row[PLACE], row[ROW], row[STATE]);
            cr_expect_eq(command, *row[COMMAND] != '\0', "%s, %s", row[PLACE], row[ROW]);
            cr_expect(*row[PLACE] && *row[ROW]);
        }
}

/* ---- the commands ---- */

/* Calls f with each single command. */
static void for_commands(void (*f)(const char *command, FILE *script), FILE *script)
{
    for (int p = 0; p < 3; p++)
        for (int r = 0; r < tables[p].n; r++)
            for (char *at = tables[p].row[r][COMMAND]; *at;) {
                char *end = at + strlen(at), *next = end, *s;
                if ((s = strstr(at, "; "))) end = s, next = s + 2;
                if ((s = strstr(at, " && ")) && s < end) end = s, next = s + 4;
                char command[2000];
                snprintf(command, sizeof command, "%.*s", (int)(end - at), at);
                f(command, script);
                at = next;
            }
}

/* Runs the lines of a script that f writes, each once; what they print must be nothing. */
static void expect_silence(void (*f)(const char *command, FILE *script))
{
    read_tables();
    FILE *script = fopen(in_folder("script"), "w");
    cr_assert(script);
    for_commands(f, script);
    fclose(script);
    char command[2000];
    snprintf(command, sizeof command,
             "cd '%s' && sort -u script >once && PATH='%s':$PATH bash once", folder, TP_BIN_DIR);
    FILE *said = popen(command, "r");
    cr_assert(said);
    char text[4000];
    text[fread(text, 1, sizeof text - 1, said)] = '\0';
    cr_expect_eq(pclose(said), 0);
    cr_expect_str_empty(text, "%s", text);
}

/* A program reads its flags in order: only an unknown one behind the others may offend it. */
static void parse(const char *command, FILE *script)
{
    fprintf(script,
            "e=$(%s --no-such-flag 2>&1) ; "
            "[[ $e == *': --no-such-flag: unknown flag'* ]] || echo \"$e\"\n",
            command);
}

Test(papers, every_flag_is_known)
{
    expect_silence(parse);
}

/* Copies the word after a flag. */
static bool value_of(const char *command, const char *flag, char *value, size_t size)
{
    const char *at = strstr(command, flag);
    if (at) snprintf(value, size, "%.*s", (int)strcspn(at + strlen(flag), " "), at + strlen(flag));
    return at != NULL;
}

static void look_up(const char *command, FILE *script)
{
    char preset[200], set[1200] = "";
    if (!value_of(command, "--preset ", preset, sizeof preset) ||
        strncmp(command, "enwik8 ", 7) == 0) /* whose presets are choices of the flag */
        return;
    if (!value_of(command, "--set ", set, sizeof set))
        value_of(command, "--vary ", set, sizeof set);
    for (char *name = preset, *next; *name; name = next) {
        next = name + strcspn(name, ",");
        if (*next) *next++ = '\0';
        const char *change = set;
        do { /* --vary lists several, separated by slashes */
            const int n = (int)strcspn(change, "/");
            fprintf(script, "tp-models --members %s%s%.*s >/dev/null 2>&1 || echo '%s %.*s'\n",
                    name, n ? " --set " : "", n, change, name, n, change);
            change += n;
        } while (*change++ == '/');
    }
}

Test(papers, every_model_exists)
{
    expect_silence(look_up);
}

/* ---- recipes ---- */

/* The number before or after a word in a text. */
static double number_at(const char *text, const char *word, bool before)
{
    const char *at = strstr(text, word);
    cr_assert(at, "%s: %s", word, text);
    if (!before) return strtod(at + strlen(word), NULL);
    while (at > text && strchr("0123456789.", at[-1])) at--;
    return strtod(at, NULL);
}

/* Table 10 of ViL prints "300 epochs, 1e-3, decay 0.1, drop path 0.1, 1024". The
 * preset's name decides on the recipe; small images and one block make the plan fast. */
static void expect_recipe(char *row[COLUMNS])
{
    const char *printed = row[PRINTED], *flags = strstr(row[COMMAND], "--preset");
    char command[2000];
    snprintf(command, sizeof command,
             "cd '%s' && '%s'/imagenet train %s --size 32 "
             "--set arch=l1,h1,d8,n1,s0,g1,p8,f7,a1,r0 --plan >out 2>&1",
             folder, TP_BIN_DIR, flags);
    cr_assert_eq(system(command), 0, "%s", command);
    slurp(in_folder("out"), out, sizeof out);
    cr_expect_eq(number_at(out, " epochs of 1 update", true), number_at(printed, " epochs", true),
                 "%s: %s", row[ROW], out);
    cr_expect_eq(number_at(out, "learning rate ", false), number_at(printed, " epochs, ", false),
                 "%s: %s", row[ROW], out);
    cr_expect_eq(number_at(out, "weight decay ", false), number_at(printed, "decay ", false),
                 "%s: %s", row[ROW], out);
    cr_expect_eq(number_at(out, "drop path ", false), number_at(printed, "drop path ", false),
                 "%s: %s", row[ROW], out);
    cr_expect_eq(number_at(out, " of 1 x ", false), strtod(strrchr(printed, ' '), NULL), "%s: %s",
                 row[ROW], out);
}

Test(papers, recipes_are_the_printed_ones)
{
    read_tables();
    int n = 0;
    for (int r = 0; r < tables[2].n; r++) {
        char **row = tables[2].row[r];
        if (strcmp(row[PLACE], "Table 10") != 0 || strstr(row[COMMAND], "--init") ||
            !strstr(row[COMMAND], "imagenet train"))
            continue;
        expect_recipe(row);
        n++;
    }
    cr_expect_eq(n, 6); /* fine-tuning starts from a file */
}

/* ---- the page ---- */

Test(papers, the_page_is_up_to_date)
{
    if (system("python3 -c '' 2>/dev/null") != 0) cr_skip_test("the page is written by Python");
    cr_expect_eq(system("'" TP_SOURCE_DIR "/scripts/reproduce.py' --check"), 0);
}
