/* test_locale.c - numbers in files and settings follow C's rules in programs that set another
 * locale: one with a decimal comma, and one with a decimal separator of two bytes. */
#include <criterion/criterion.h>
#include <float.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/coco_eval.h>
#include <tapegrad/options.h>
#include <unistd.h>

#include "support/runs.h"

static const char *const locales[] = { "de_DE", "ps_AF" };
enum { LOCALES = sizeof locales / sizeof *locales };

static char home[] = "/tmp/tapegrad-locales-XXXXXX";

static void remove_locales(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", home);
    cr_expect(shell(command));
}

/* Builds the locales in a separate folder, where setlocale finds them. */
static void build_locales(void)
{
    cr_assert(mkdtemp(home));
    for (int i = 0; i < LOCALES; i++) {
        char command[200];
        snprintf(command, sizeof command,
                 "localedef --no-archive -i %s -f UTF-8 %s/%s.UTF-8 >/dev/null 2>&1", locales[i],
                 home, locales[i]);
        if (!shell(command)) {
            remove_locales();
            cr_skip_test("there is no localedef, or no %s: install the package locales",
                         locales[i]);
        }
    }
    setenv("LOCPATH", home, 1);
}

static void enter(const char *locale)
{
    char name[40];
    snprintf(name, sizeof name, "%s.UTF-8", locale);
    cr_assert(setlocale(LC_ALL, name), "%s", name);
    cr_assert_neq(localeconv()->decimal_point[0], '.', "%s", name);
}

/* ---- the library ---- */

typedef struct settings {
    double rate;
} settings;

static const tp_option options[] = {
    TP_NUM("rate", settings, rate, 0, 1, TP_SAVED, "Rate."),
    { 0 },
};

static void expect_settings(const char *locale)
{
    settings s = { 0 };
    char text[64], why[200] = "";
    cr_expect(tp_option_set(&options[0], &s, "0.125", why, sizeof why), "%s: %s", locale, why);
    cr_expect_eq(s.rate, 0.125, "%s", locale);
    tp_option_get(&options[0], &s, text, sizeof text);
    cr_expect_str_eq(text, "0.125", "%s", locale);
    cr_expect_not(tp_option_set(&options[0], &s, "0,125", why, sizeof why), "%s", locale);
}

static void expect_metadata(const char *locale)
{
    const double values[] = { 0.1, -2.5e-300, 1, DBL_MAX, DBL_MIN / 3 };
    tp_writer *W = tp_writer_new("meta.safetensors");
    for (int i = 0; i < 5; i++) tp_writer_meta_num(W, (char[]){ (char)('a' + i), '\0' }, values[i]);
    cr_assert(tp_writer_commit(W), "%s: %s", locale, tp_writer_why(W));
    tp_writer_free(W);
    tp_file *F = tp_file_open("meta.safetensors");
    cr_expect_str_eq(tp_file_meta(F, "a"), "0.1", "%s", locale);
    for (int i = 0; i < 5; i++) {
        double x = 0;
        tp_file_num(F, (char[]){ (char)('a' + i), '\0' }, &x);
        cr_expect_eq(x, values[i], "%s: %g, not %g: %s", locale, x, values[i], tp_file_why(F));
    }
    tp_file_close(F);
}

static void expect_detections(const char *locale)
{
    static const char text[] =
        "{\"images\":[{\"id\":1,\"width\":64,\"height\":48,\"file_name\":\"a.png\"}],"
        "\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":1,\"bbox\":[1.5,2.25,10.5,8.75],"
        "\"area\":91.875}],\"categories\":[{\"id\":1,\"name\":\"x\"}]}";
    char why[400] = "", line[400];
    tp_coco *X = tp_coco_from(text, sizeof text - 1, "text");
    cr_assert(tp_coco_ok(X), "%s: %s", locale, tp_coco_why(X));
    tp_detections *R = tp_detections_new(X), *S;
    tp_detections_add(R, &(tp_detection){ .box = { 1.5, 2.25, 10.5, 8.75 }, .score = 0.1 });
    cr_assert(tp_detections_write(R, "found.json", why, sizeof why), "%s: %s", locale, why);
    slurp("found.json", line, sizeof line);
    cr_expect(strstr(line, "\"bbox\":[1.5,2.25,10.5,8.75],\"score\":0.1"), "%s: %s", locale, line);
    S = tp_detections_open(X, "found.json");
    cr_expect_eq(tp_detections_count(S), 1, "%s: %s", locale, tp_detections_why(S));
    tp_detections_close(S), tp_detections_close(R), tp_coco_close(X);
}

static void expect_voc(const char *locale)
{
    cr_assert(
        shell("mkdir -p voc/Annotations && cat >voc/Annotations/a.xml <<E\n"
              "<annotation><filename>a.png</filename><size><width>64</width><height>48</height>"
              "<depth>3</depth></size><object><name>x</name><difficult>0</difficult><bndbox>"
              "<xmin>2.5</xmin><ymin>3</ymin><xmax>30</xmax><ymax>20</ymax></bndbox></object>"
              "</annotation>\nE\n"));
    tp_coco *X = tp_coco_voc("voc", TP_TRAIN);
    cr_assert(tp_coco_ok(X), "%s: %s", locale, tp_coco_why(X));
    cr_expect_eq(tp_coco_object_at(X, 0)->box[0], 1.5, "%s: the corner 2.5, counted from 0",
                 locale);
    tp_coco_close(X);
}

Test(locale, the_library_reads_and_writes_by_the_rules_of_c)
{
    build_locales();
    program_begin("");
    for (int i = 0; i < LOCALES; i++) {
        enter(locales[i]);
        expect_settings(locales[i]);
        expect_metadata(locales[i]);
        expect_detections(locales[i]);
        expect_voc(locales[i]);
        cr_expect_neq(localeconv()->decimal_point[0], '.', "%s: the program's locale stays",
                      locales[i]);
    }
    setlocale(LC_ALL, "C");
    program_end();
    remove_locales();
}

/* ---- training programs ---- */

/* A run that begins, validates, writes its files and resumes under another locale writes the same
 * files as under C's. */
Test(locale, runs_are_those_of_the_c_locale, .timeout = 600)
{
    build_locales();
    for (int i = 0; i < run_kind_count; i++) {
        const run_kind *k = &run_kinds[i];
        const char *locale = locales[i % LOCALES];
        char prefix[400], args[2000];
        if (!run_kind_wanted(k)) continue;
        run_kind_begin(k);
        snprintf(
            prefix, sizeof prefix,
            "ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 LC_ALL=%s.UTF-8 LD_PRELOAD=%s",
            locale, TP_SET_LOCALE);
        succeed("%s %s --steps 6 --run-dir plain", k->train, k->often);
        snprintf(args, sizeof args, "%s %s --steps 4 --run-dir run", k->train, k->often);
        cr_assert_eq(run_under(prefix, args), 0, "%s: %s", k->command, errors);
        cr_assert_eq(run_under(prefix, "--resume --steps 6 --run-dir run"), 0, "%s: %s", k->command,
                     errors);
        cr_expect(same_log("plain/log.jsonl", "run/log.jsonl"), "%s: log", k->command);
        cr_expect(same_bytes("plain/last.safetensors", "run/last.safetensors"), "%s: last",
                  k->command);
        cr_expect(same_bytes("plain/best.safetensors", "run/best.safetensors"), "%s: best",
                  k->command);
        program_end();
    }
    remove_locales();
}
