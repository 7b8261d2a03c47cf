/* test_class_names.c - the names of classes: published lists, words for wnids, and names with
 * arbitrary bytes in outputs of every kind. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <unistd.h>

#include "names/class_names.h"
#include "predictions.h"
#include "reports/plain_text.h"
#include "support/folder.h"

/* ---- lists ---- */

Test(class_names, published_lists)
{
    static const struct {
        const char *id;
        int64_t count, at;
        const char *wnid, *name;
    } rows[] = {
        { "imagenet", 1000, 0, "n01440764", "tench" },
        { "imagenet", 1000, 1, "n01443537", "goldfish" },
        { "imagenet", 1000, 134, "n02012849", "crane (animal)" },
        { "imagenet", 1000, 517, "n03126707", "crane (artifact)" },
        { "imagenet", 1000, 701, "n03888257", "parachute" },
        { "imagenet", 1000, 850, "n04399382", "teddy" },
        { "imagenet", 1000, 999, "n15075141", "toilet tissue" },
        { "imagenet21k", 21841, 0, "n00004475", "organism" },
        { "imagenet21k", 21841, 21840, "n15102894", "knothole" },
        { "cifar10", 10, 0, "", "airplane" },
        { "cifar10", 10, 9, "", "truck" },
        { "cifar100", 100, 1, "", "aquarium fish" },
        { "cifar100", 100, 99, "", "worm" },
        { "food101", 101, 0, "", "Apple pie" },
        { "food101", 101, 16, "", "Cheese plate" },
        { "food101", 101, 17, "", "Cheesecake" },
        { "food101", 101, 100, "", "Waffles" },
        { "ip102", 102, 0, "", "rice leaf roller" },
        { "ip102", 102, 101, "", "Cicadellidae" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char wnid[WNID_SIZE];
        const name_list *l = name_list_find(rows[i].id);
        cr_assert(l && l->count == rows[i].count, "%s", rows[i].id);
        const char *name = name_list_at(l, rows[i].at, wnid);
        cr_expect_str_eq(name, rows[i].name, "%s %lld: %s", rows[i].id, (long long)rows[i].at,
                         name);
        cr_expect_str_eq(wnid, rows[i].wnid, "%s %lld: %s", rows[i].id, (long long)rows[i].at,
                         wnid);
    }
    cr_expect_null(name_list_find("imagenet22k"));
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Every list is complete, its wnids ascend, and a wnid gives the same words as the class's number.
 * No two classes share a name, except in ImageNet-21K. */
Test(class_names, lists_are_consistent)
{
    int lists = 0;
    for (const name_list *l = name_lists; l->id; l++, lists++) {
        char before[WNID_SIZE] = "", wnid[WNID_SIZE];
        const char **names = calloc((size_t)l->count, sizeof *names);
        for (int64_t i = 0; i<l->count; i += l->count> 1000 ? 97 : 1) {
            names[i] = name_list_at(l, i, wnid);
            cr_assert(names[i] && names[i][0], "%s %lld", l->id, (long long)i);
            if (l->names) continue;
            cr_assert(strcmp(before, wnid) < 0, "%s %lld: %s, %s", l->id, (long long)i, before,
                      wnid);
            cr_assert(wnid_words(wnid) == names[i], "%s", wnid);
            memcpy(before, wnid, sizeof before);
        }
        if (l->count <= 1000) {
            qsort(names, (size_t)l->count, sizeof *names, by_text);
            for (int64_t i = 1; i < l->count; i++)
                cr_expect(strcmp(names[i - 1], names[i]) != 0, "%s: %s", l->id, names[i]);
        }
        free(names);
    }
    cr_expect_eq(lists, 6);
}

Test(class_names, words_of_folders)
{
    static const char *const none[] = { "",          "n",         "n0388825",  "n038882570",
                                        "n00000000", "n99999999", "x03888257", "n0388825x",
                                        "n 3888257", "parachute", "N03888257" };
    cr_expect_str_eq(wnid_words("n03888257"), "parachute");
    cr_expect_str_eq(wnid_words("n00004475"), "organism");
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        cr_expect_null(wnid_words(none[i]), "'%s'", none[i]);
    cr_expect_str_eq(food_words("apple_pie"), "Apple pie");
    cr_expect_str_eq(food_words("caesar_salad"), "Caesar salad");
    cr_expect_null(food_words("apple_pies"));
    cr_expect_null(food_words("apple"));
    cr_expect_null(food_words(""));
}

/* ImageNet's list beside the project has our order, and its first words are ours. */
Test(class_names, agree_with_the_list_of_imagenet)
{
    FILE *f = fopen(TP_SOURCE_DIR "/../shared/data/imagenet/meta/imagenet_class_index.tsv", "r");
    if (!f) cr_skip("../shared/data/imagenet/meta is absent");
    char line[400], wnid[WNID_SIZE];
    int n = 0;
    for (; fgets(line, sizeof line, f); n++) {
        char *id = strchr(line, '\t') + 1, *words = strchr(id, '\t') + 1;
        const char *name = name_list_at(name_list_find("imagenet"), n, wnid);
        const size_t length = strcspn(words, ",\n"), ours = strcspn(name, "(");
        cr_expect(strncmp(id, wnid, 9) == 0, "%d: %s", n, wnid);
        cr_expect(strncmp(words, name, length) == 0 && (ours == length || ours == length + 1),
                  "%d: %s is %s", n, name, words);
    }
    fclose(f);
    cr_expect_eq(n, 1000);
}

/* ---- the names of a model ---- */

static void expect_words(const class_names *n, int64_t i, const char *name, const char *wnid)
{
    const class_words w = class_words_at(n, i);
    cr_expect(strcmp(w.name, name) == 0 && strcmp(w.wnid, wnid) == 0, "%lld: '%s' '%s', not '%s'",
              (long long)i, w.name, w.wnid, name);
}

Test(class_names, of_a_model)
{
    static const struct {
        const char *given, *stored;
        int64_t classes, at;
        const char *name, *wnid;
    } rows[] = {
        { NULL, NULL, 1000, 999, "toilet tissue", "n15075141" },
        { NULL, NULL, 21841, 0, "organism", "n00004475" },
        { NULL, NULL, 10, 7, "class 7", "" },
        { NULL, "red\nblue\n", 2, 1, "blue", "" },
        { NULL, "n03888257\nn01440764\n", 2, 0, "parachute", "n03888257" },
        { NULL, "n03888257\nn01440764\n", 1000, 0, "parachute", "n03888257" },
        { NULL, "apple_pie\nmy_dish\n", 2, 0, "Apple pie", "" },
        { NULL, "apple_pie\nmy_dish\n", 2, 1, "my_dish", "" },
        { NULL, "class 0\nclass 1\n", 102, 2, "paddy stem maggot", "" },
        { NULL, "class 0\nclass 1\n", 2, 1, "class 1", "" },
        { NULL, "red\n\n", 2, 1, "class 1", "" },
        { "cifar10", NULL, 10, 7, "horse", "" },
        { "cifar10", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n", 10, 7, "horse", "" },
    };
    char why[1024];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        class_names n;
        cr_assert(
            class_names_find(&n, rows[i].given, rows[i].stored, rows[i].classes, why, sizeof why),
            "%zu: %s", i, why);
        expect_words(&n, rows[i].at, rows[i].name, rows[i].wnid);
        class_names_free(&n);
    }
}

TestSuite(name_files, .init = make_folder, .fini = remove_folder);

Test(name_files, lines)
{
    static const struct {
        const char *bytes;
        size_t size;
    } files[] = { { "red\nn03888257\n", 14 },
                  { "red\r\nn03888257\r\n", 16 },
                  { "red\nn03888257", 13 },
                  { "\xef\xbb\xbfred\nn03888257", 16 } };
    char why[1024];
    const char *path = in_folder("names.txt");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        class_names n;
        cr_assert(tp_file_replace(path, files[i].bytes, files[i].size, why, sizeof why));
        cr_assert(class_names_find(&n, path, NULL, 2, why, sizeof why), "%zu: %s", i, why);
        expect_words(&n, 0, "red", "");
        expect_words(&n, 1, "parachute", "n03888257");
        class_names_free(&n);
        cr_expect_not(class_names_find(&n, path, NULL, 3, why, sizeof why));
        cr_expect(strstr(why, "has 2 names, the model has 3 classes"), "%s", why);
        class_names_free(&n);
    }
}

Test(name_files, refusals)
{
    char why[1024];
    class_names n;
    const char *large = in_folder("large");
    cr_assert(tp_file_replace(large, "", 0, why, sizeof why));
    cr_assert(truncate(large, INT64_C(1) << 40) == 0);
    const char *wide = in_folder("wide"), *zero = in_folder("zero");
    cr_assert(tp_file_replace(wide, "\xff\xfer\0\n\0", 6, why, sizeof why));
    cr_assert(tp_file_replace(zero, "re\0d\nn03888257\n", 15, why, sizeof why));
    const struct {
        const char *given, *message;
    } bad[] = { { "cifar10", "--names cifar10: has 10 names, the model has 1000 classes" },
                { "cifar", "--names cifar: No such file or directory; did you mean cifar10?" },
                { "/names", "--names /names: No such file or directory; give a file" },
                { folder, "is a folder; give a file with a name per line, or imagenet" },
                { large, "1099511627776 bytes" },
                { wide, "wide is UTF-16; convert it to UTF-8" },
                { zero, "zero has a zero byte at offset 2" } };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_expect_not(class_names_find(&n, bad[i].given, NULL, 1000, why, sizeof why));
        cr_expect(strstr(why, bad[i].message), "%s: %s", bad[i].given, why);
        class_names_free(&n);
    }
}

/* ---- any bytes ---- */

static const char *const hostile[] = {
    "plain",
    "=1+1",
    "+1",
    "-x",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "=cmd|' /C calc'!A0, \"x\"",
    "two words",
    "comma, \"quote\"",
    "line\nfeed",
    "\x1b[2Jcleared",
    "tab\there",
    "cr\r\nlf",
    "\x7f\x01\x02",
    "caf\xc3\xa9",
    "\xff\xfe",
    "cut \xe2\x82",
    "",
    "\xc2\x9b"
    "2J",
    "\xe2\x80\xae"
    "txt.exe",
    "\xed\xa0\x80",
    "\xc0\xaf",
    "\xf0\x9f\x90\x9f",
};
enum { HOSTILE = sizeof hostile / sizeof hostile[0] };

Test(plain_text, lines)
{
    static const struct {
        const char *text, *line;
        int columns;
    } rows[] = {
        { "line\nfeed", "line\\nfeed", 10 },
        { "\x1b[2J", "\\x1b[2J", 7 },
        { "tab\there", "tab\\there", 9 },
        { "caf\xc3\xa9", "caf\xc3\xa9", 4 },
        { "\xff", "\\xff", 4 },
        { "cut \xe2\x82", "cut \\xe2\\x82", 12 },
        { "\xc2\x9b", "\\xc2\\x9b", 8 },
        { "\xe2\x80\xae", "\\xe2\\x80\\xae", 12 },
        { "\xed\xa0\x80", "\\xed\\xa0\\x80", 12 },
        { "\xf0\x9f\x90\x9f", "\xf0\x9f\x90\x9f", 1 },
        { "", "", 0 },
    };
    char line[100], small[6];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        plain_line(rows[i].text, line, sizeof line);
        cr_expect_str_eq(line, rows[i].line, "%zu: %s", i, line);
        cr_expect_eq(plain_columns(line), rows[i].columns, "%s: %d", line, plain_columns(line));
    }
    cr_expect_str_eq(plain_line("caf\xc3\xa9!", small, sizeof small), "caf\xc3\xa9");
    cr_expect_str_eq(plain_line("cafes\xc3\xa9", small, sizeof small), "cafes");
    cr_expect_str_eq(plain_line("four\xc3\xa9", small, sizeof small), "four");
}

Test(plain_text, characters)
{
    static const struct {
        const char *text;
        size_t bytes;
        uint32_t letter;
    } rows[] = { { "ab", 1, 'a' },
                 { "", 1, 0 },
                 { "\xc3\xa9!", 2, 0xe9 },
                 { "\xe2\x82\xac", 3, 0x20ac },
                 { "\xf0\x9f\x90\x9f", 4, 0x1f41f },
                 { "\xc0\xaf", 0, 0 },
                 { "\xe2\x82", 0, 0 },
                 { "\xed\xa0\x80", 0, 0 },
                 { "\x80", 0, 0 },
                 { "\xf4\x90\x80\x80", 0, 0 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t letter = 0;
        const size_t n = tp_utf8_at(rows[i].text, &letter);
        cr_expect(n == rows[i].bytes && (!n || letter == rows[i].letter), "%zu: %zu bytes, U+%04x",
                  i, n, (unsigned)letter);
    }
}

Test(plain_text, file_names)
{
    static const struct {
        const char *text, *name;
    } rows[] = {
        { "parachute", "parachute" },
        { "black-and-tan coonhound", "black-and-tan-coonhound" },
        { "../../etc/passwd", "etc-passwd" },
        { "\x1b[2J", "2J" },
        { "caf\xc3\xa9 au lait", "caf-au-lait" },
        { "\xff\xfe", "x" },
        { "", "x" },
        { "crane (animal)", "crane-animal" },
    };
    char name[40], small[5];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        cr_expect_str_eq(plain_file_name(rows[i].text, name, sizeof name), rows[i].name, "%s",
                         name);
    cr_expect_str_eq(plain_file_name("golf ball", small, sizeof small), "golf");
}

Test(plain_text, utf8)
{
    for (int i = 0; i < HOSTILE; i++) {
        char *text = plain_utf8(hostile[i]);
        cr_expect(text && tp_is_utf8(text), "%d", i);
        if (tp_is_utf8(hostile[i])) cr_expect_str_eq(text, hostile[i]);
        free(text);
    }
    char *text = plain_utf8("a\xff"
                            "b\xe2\x82");
    cr_expect_str_eq(text, "a\xef\xbf\xbd"
                           "b\xef\xbf\xbd\xef\xbf\xbd");
    free(text);
}

/* ---- printed predictions ---- */

/* predictions_print's output for one image; the caller frees it. */
static char *printed(output_format format, const class_names *n, const char *path,
                     const prediction *best, int count)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    predictions_begin(out, format);
    cr_assert(
        predictions_print(out, format, n, &(predicted){ .path = path, .best = best, .n = count }));
    cr_assert(fclose(out) == 0);
    return text;
}

/* The next CSV field at *at; true if it ends its line. */
static bool field(const char **at, char *to)
{
    const char *s = *at;
    const bool quoted = *s == '"';
    if (quoted) s++;
    while (quoted ? !(s[0] == '"' && s[1] != '"') : *s != ',' && *s != '\r') {
        cr_assert(*s, "the field ends");
        if (quoted && *s == '"') s++;
        *to++ = *s++;
    }
    *to = '\0';
    if (quoted) s++;
    const bool last = *s == '\r';
    cr_assert(last ? s[1] == '\n' : *s == ',', "a field ends in a comma or CRLF: %s", s);
    *at = s + 1 + last;
    return last;
}

Test(predictions, are_the_likeliest)
{
    static const float logits[] = { 0, 2, -3, 2, 1 };
    const double sum = 1 + 2 * exp(2) + exp(-3) + exp(1);
    prediction best[5];
    cr_assert(predictions_of(logits, 5, 3, best));
    cr_expect(best[0].label == 1 && best[1].label == 3 && best[2].label == 4, "%d %d %d",
              best[0].label, best[1].label, best[2].label);
    cr_expect_float_eq(best[0].p, exp(2) / sum, 1e-12);
    cr_expect_float_eq(best[2].p, exp(1) / sum, 1e-12);
    cr_expect(predictions_of((float[]){ 1e30f, -1e30f }, 2, 2, best) && best[0].p == 1);
    cr_expect_not(predictions_of((float[]){ 1, NAN, 0 }, 3, 1, best));
    cr_expect_not(predictions_of((float[]){ 1, INFINITY, 0 }, 3, 1, best));
}

/* A text as in CSV: without control characters, not a formula. */
static char *as_csv(const char *text, char *to)
{
    char *at = to;
    if (*text && strchr("=+-@\t\r\n", *text)) *at++ = '\'';
    for (; *text; text++) {
        char one[TP_PLAIN], *end = at;
        const size_t n = tp_plain_at(text, one);
        if (strchr("\t\r\n", *text))
            *end++ = *text;
        else
            end += sprintf(at, "%s", one);
        at = end;
        text += n - 1;
    }
    *at = '\0';
    return to;
}

/* Every path and every name survives JSON (with U+FFFD for bad bytes) and CSV (with \xHH for
 * control characters and bad bytes, and an apostrophe before what would be a formula). */
Test(predictions, survive_hostile_names)
{
    const prediction best[] = { { 0, 0.75 }, { 1, 0.25 } };
    for (int i = 0; i < HOSTILE; i++) {
        char names[600], read[600], cell[600], *expected = plain_utf8(hostile[i]);
        const bool line = hostile[i][0] && !strchr(hostile[i], '\n');
        snprintf(names, sizeof names, "%s\nn03888257\n", line ? hostile[i] : "red");
        class_names n = { .text = names };

        char *text = printed(FORMAT_JSON, &n, hostile[i], best, 2);
        json_t *root = json_loads(text, 0, NULL), *rows = json_object_get(root, "predictions");
        cr_assert(root && strchr(text, '\n') == text + strlen(text) - 1, "%d: %s", i, text);
        cr_expect_str_eq(json_string_value(json_object_get(root, "image")), expected);
        const json_t *first = json_array_get(rows, 0), *second = json_array_get(rows, 1);
        cr_expect_eq(json_array_size(rows), 2);
        cr_expect_str_eq(json_string_value(json_object_get(first, "name")),
                         line ? expected : "red");
        cr_expect_null(json_object_get(first, "wnid"));
        cr_expect_float_eq(json_number_value(json_object_get(first, "probability")), 0.75, 0);
        cr_expect_str_eq(json_string_value(json_object_get(second, "name")), "parachute");
        cr_expect_str_eq(json_string_value(json_object_get(second, "wnid")), "n03888257");
        cr_expect_eq(json_integer_value(json_object_get(second, "class")), 1);
        json_decref(root);
        free(text);

        as_csv(hostile[i], cell);
        text = printed(FORMAT_CSV, &n, hostile[i], best, 2);
        cr_expect(!strchr(text, 0x1b) && tp_is_utf8(text), "%s", text);
        const char *at = text;
        static const char header[] = "image,rank,class,wnid,name,probability\r\n";
        cr_assert(strncmp(at, header, strlen(header)) == 0, "%s", text);
        at += strlen(header);
        const char *const row[2][6] = {
            { cell, "1", "0", "", line ? cell : "red", "0.75" },
            { cell, "2", "1", "n03888257", "parachute", "0.25" },
        };
        for (int r = 0; r < 2; r++)
            for (int c = 0; c < 6; c++) {
                cr_expect_eq(field(&at, read), c == 5, "%d: row %d, column %d", i, r, c);
                cr_expect_str_eq(read, row[r][c], "%d: %s", i, read);
            }
        cr_expect_eq(*at, '\0');
        free(text);

        text = printed(FORMAT_TABLE, &n, hostile[i], best, 2);
        int lines = 0;
        for (const char *s = text; *s; s++) {
            lines += *s == '\n';
            cr_expect((unsigned char)*s >= 0x20 || *s == '\n', "%d: a control character", i);
        }
        cr_expect_eq(lines, 3, "%s", text);
        cr_expect(tp_is_utf8(text) && strstr(text, "parachute (n03888257)\n"), "%s", text);
        free(text);
        free(expected);
    }
}
