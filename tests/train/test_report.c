/* test_report.c - what tp-report reads and writes: short, long and damaged logs, hostile texts,
 * pictures, messages; the page and files of a run with --report. test_report_page.c tests the
 * look. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/file.h>
#include <tapegrad/report.h>
#include <unistd.h>

#include "support/files.h"
#include "support/program.h"

static char *page;

static void begin(void)
{
    program_begin("tp-report");
    cr_assert(mkdir("run", 0777) == 0);
}

static void end(void)
{
    free(page);
    page = NULL;
    program_end();
}

static void put(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

static void read_page(const char *path)
{
    struct stat s;
    FILE *f = fopen(path, "r");
    cr_assert(f && fstat(fileno(f), &s) == 0, "%s", path);
    free(page);
    page = calloc(1, (size_t)s.st_size + 1);
    cr_assert(page && fread(page, 1, (size_t)s.st_size, f) == (size_t)s.st_size);
    fclose(f);
}

/* Run i on the page of the folder "run"; the caller frees *data. */
static json_t *run_of(json_t **data, int i)
{
    const char *begin_of = strstr(page, "id=\"data\">");
    const char *end_of = begin_of ? strstr(begin_of, "</script>") : NULL;
    cr_assert(end_of, "the page has no data");
    begin_of += strlen("id=\"data\">");
    *data = json_loadb(begin_of, (size_t)(end_of - begin_of), JSON_ALLOW_NUL, NULL);
    json_t *run = json_array_get(json_object_get(*data, "runs"), (size_t)i);
    cr_assert(run, "the data are damaged");
    return run;
}

static json_t *write_report(json_t **data)
{
    char why[1000] = "";
    const char *const runs[] = { "run" };
    cr_assert(tp_report_write("page.html", runs, 1, why, sizeof why), "%s", why);
    read_page("page.html");
    return run_of(data, 0);
}

static const json_t *values(const json_t *run, const char *key)
{
    return json_object_get(json_object_get(json_object_get(run, "log"), "values"), key);
}

static double value(const json_t *run, const char *key, size_t i)
{
    return json_number_value(json_array_get(values(run, key), i));
}

static bool noted(const json_t *run, const char *words)
{
    size_t i;
    json_t *note;
    json_array_foreach(json_object_get(run, "notes"), i, note)
    {
        if (strstr(json_string_value(note), words)) return true;
    }
    return false;
}

static int count(const char *words)
{
    int n = 0;
    for (const char *s = page; (s = strstr(s, words)); s++) n++;
    return n;
}

/* ---- logs ---- */

Test(report, short_logs_are_kept_whole)
{
    json_t *data;
    begin();
    FILE *f = fopen("run/log.jsonl", "w");
    for (int i = 1; i <= 300; i++)
        fprintf(f, "{\"step\":%d,\"tokens\":%lld,\"loss\":%.9g%s}\n", i, 1000000007LL * i, 1.0 / i,
                i % 100 == 0 ? ",\"valid_bpc\":2" : "");
    fclose(f);
    const json_t *run = write_report(&data), *log = json_object_get(run, "log");
    cr_assert_eq(json_array_size(values(run, "loss")), 300);
    for (size_t i = 0; i < 300; i++) {
        cr_expect_eq(value(run, "step", i), (double)(i + 1));
        cr_expect_eq(value(run, "tokens", i), 1000000007.0 * (double)(i + 1), "every digit");
        cr_expect_float_eq(value(run, "loss", i), 1.0 / (double)(i + 1), 1e-9);
    }
    cr_expect_eq(json_array_size(values(run, "valid_bpc")), 3);
    const json_t *at = json_object_get(json_object_get(log, "at"), "valid_bpc");
    cr_expect_eq(json_integer_value(json_array_get(at, 1)), 199, "the row of the validation");
    cr_expect_str_eq(json_string_value(json_object_get(log, "score")), "valid_bpc");
    cr_expect(noted(run, "config.json is missing"));
    json_decref(data);
    end();
}

/* An editor may have put a byte order mark before both files. */
Test(report, byte_order_marks_are_passed_over)
{
    json_t *data;
    begin();
    put("run/config.json", "\xef\xbb\xbf{\"program\": \"enwik8\", \"unit\": \"tokens\"}");
    put("run/log.jsonl", "\xef\xbb\xbf{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":0.25}\n");
    const json_t *run = write_report(&data);
    cr_expect_eq(json_array_size(values(run, "loss")), 2);
    cr_expect_not(noted(run, "config.json"));
    json_decref(data);
    end();
}

Test(report, long_logs_keep_their_extremes)
{
    json_t *data;
    double low = 9, high = 0, last = 0;
    begin();
    FILE *f = fopen("run/log.jsonl", "w");
    for (int i = 1; i <= 60000; i++)
        fprintf(f, "{\"step\":%d,\"loss\":%g,\"norm\":%g,\"lr\":%g}\n", i,
                i == 31234   ? 77.5
                : i == 45678 ? 0.25
                             : 1 + i % 97 * 0.001,
                1 + i % 89 * 0.01, i % 83 * 1e-5);
    fclose(f);
    const json_t *run = write_report(&data);
    const size_t n = json_array_size(values(run, "loss"));
    for (size_t i = 0; i < n; i++) {
        const double x = value(run, "loss", i), step = value(run, "step", i);
        cr_expect(step > last, "the order of the log");
        cr_expect_eq(x == 77.5, step == 31234);
        low = fmin(low, x);
        high = fmax(high, x);
        last = step;
    }
    cr_expect_eq(low, 0.25);
    cr_expect_eq(high, 77.5);
    cr_expect_eq(last, 60000);
    cr_expect_gt(n, 800);
    cr_expect_lt(strlen(page), 2000 * 1000);
    cr_expect_eq(json_integer_value(json_object_get(json_object_get(run, "log"), "lines")), 60000);
    json_decref(data);
    end();
}

Test(report, damaged_logs)
{
    json_t *data;
    begin();
    char *huge = malloc(3 << 20);
    memset(huge, 'x', 3 << 20);
    FILE *f = fopen("run/log.jsonl", "w");
    fputs("{\"step\":1,\"loss\":1}\nnonsense\n{\"step\":2,\"loss\":null}\n"
          "{\"step\":3,\"loss\":NaN}\n",
          f);
    fputs("[1,2]\n{\"loss\":5}\n{\"step\":\"4\"}\n", f);
    fwrite(huge, 1, 3 << 20, f);
    fputs("\n{\"step\":5,\"loss\":3,\"ops\":7,\"text\":\"t\"}\n{\"step\":6,\"lo", f);
    fclose(f);
    free(huge);
    put("run/config.json", "{ damaged");
    const json_t *run = write_report(&data);
    cr_assert_eq(json_array_size(values(run, "loss")), 3);
    cr_expect(json_is_null(json_array_get(values(run, "loss"), 1)), "null leaves a gap");
    cr_expect_eq(value(run, "loss", 2), 3);
    cr_expect(noted(run, "6 of 9 lines of log.jsonl could not be read"));
    cr_expect(noted(run, "the first is line 2"));
    cr_expect(noted(run, "The last line of log.jsonl is incomplete"));
    cr_expect(noted(run, "1 value of log.jsonl is NaN or infinite"));
    cr_expect(noted(run, "config.json is missing or damaged"));
    json_decref(data);

    put("run/log.jsonl", "");
    run = write_report(&data);
    cr_expect(json_is_null(json_object_get(json_object_get(run, "log"), "last")), "no report yet");
    json_decref(data);
    end();
}

/* ---- texts and pictures ---- */

Test(report, hostile_texts)
{
    static const char evil[] = "</script><!--<script>\"'\\\x01\xe2\x80\xa8\xff{{page}}";
    json_t *data, *config = json_object();
    char why[1000];
    begin();
    put("run/log.jsonl", "{\"step\":1,\"loss\":1,\"</script>\":2}\n");
    json_object_set_new(config, "program", json_string("</script><b>"));
    cr_assert(json_dump_file(config, "run/config.json", 0) == 0);
    json_decref(config);
    write_bytes("run/sample<b>.txt", evil, 0);
    write_bytes("run/sample_s.txt", evil, sizeof evil);
    const char *const runs[] = { "<img onx>&\"=run" };
    cr_assert(tp_report_write("page.html", runs, 1, why, sizeof why), "%s", why);
    read_page("page.html");
    const json_t *run = run_of(&data, 0);
    cr_expect_eq(count("</script>"), 2, "the data's and the script's");
    cr_expect_eq(count("<script"), 2);
    cr_expect_eq(count("<img"), 0);
    cr_expect_eq(count("<!--"), 0);
    cr_expect_eq(count("http"), 1, "http-equiv, and no address");
    cr_expect(strstr(page, "<title>&lt;img onx&gt;&amp;&quot;</title>"));
    cr_expect_str_eq(json_string_value(json_object_get(run, "name")), "<img onx>&\"");
    const json_t *text = json_object_get(json_array_get(json_object_get(run, "files"), 1), "text");
    cr_expect_eq(json_string_length(text), sizeof evil + 2, "one byte became U+FFFD");
    cr_expect(strstr(json_string_value(text), "\xe2\x80\xa8\xef\xbf\xbd{{page}}"));
    json_decref(data);
    end();
}

static void expect_base64(const char *uri, const char *digits)
{
    const char *prefix = "data:image/jpeg;base64,";
    cr_assert(uri && strncmp(uri, prefix, strlen(prefix)) == 0, "%s", uri ? uri : "none");
    cr_expect_str_eq(uri + strlen(prefix), digits);
}

Test(report, pictures_and_samples)
{
    static char noise[1200 * 1000];
    json_t *data;
    begin();
    put("run/log.jsonl", "{\"step\":1,\"loss\":1}\n");
    cr_assert(mkdir("run/errors", 0777) == 0);
    write_bytes("run/a.jpg", "\xff\xd8\xff\xe0", 4);
    write_bytes("run/b.jpg", "\xff\xd8\xff\xe0\x01", 5);
    write_bytes("run/errors/c.jpg", "\xff\xd8\xff\xe0\x01\x02", 6);
    put("run/curve.png", "\x89PNG of scripts/plot.sh");
    put("run/d.png", "no picture");
    put("run/corpus.txt", "no sample");
    put("run/e.svg", "<svg/>");
    put("run/e.png", "\x89PNG the same");
    memcpy(noise, "\x89PNG", 4);
    write_bytes("run/large.png", noise, sizeof noise);
    memset(noise, 'a', sizeof noise);
    write_bytes("run/samples.txt", noise, 10000);
    const json_t *run = write_report(&data), *files = json_object_get(run, "files");
    cr_assert_eq(json_array_size(files), 5);
    const char *const names[] = { "a.jpg", "b.jpg", "e.svg", "samples.txt", "errors/c.jpg" };
    for (size_t i = 0; i < 5; i++)
        cr_expect_str_eq(json_string_value(json_object_get(json_array_get(files, i), "name")),
                         names[i]);
    const char *const digits[] = { "/9j/4A==", "/9j/4AE=", NULL, NULL, "/9j/4AEC" };
    for (size_t i = 0; i < 5; i++)
        if (digits[i])
            expect_base64(json_string_value(json_object_get(json_array_get(files, i), "picture")),
                          digits[i]);
    cr_expect_eq(json_string_length(json_object_get(json_array_get(files, 3), "text")), 8192);
    cr_expect(json_is_true(json_object_get(json_array_get(files, 3), "cut")));
    cr_expect(noted(run, "d.png cannot be shown"));
    cr_expect(noted(run, "1 more file would make this page too large"));
    json_decref(data);
    end();
}

/* ---- the program ---- */

Test(report, program)
{
    begin();
    put("run/log.jsonl", "{\"step\":1,\"loss\":1}\n");
    expect_refusal("", 2, "no RUN is given");
    expect_refusal("--outputs x", 2, "did you mean --output?");
    expect_refusal("absent", 1,
                   "run folder absent: No such file or directory; name the folder of a run");
    expect_refusal("run ab=absent", 1, "run folder absent");
    expect_refusal(".", 1,
                   "./log.jsonl cannot be read: No such file or directory; name the folder");
    cr_expect(access("report.html", F_OK) != 0, "nothing was written");
    cr_assert(mkdir("odd", 0777) == 0 && mkfifo("odd/log.jsonl", 0666) == 0);
    expect_refusal("odd", 1, "odd/log.jsonl is a pipe, not the log of a run");
    expect_refusal("run -o nowhere/page.html", 1, "nowhere");
    expect_refusal("run -o run/log.jsonl", 1, "run/log.jsonl was not written: end the name");
    cr_expect(shell("grep -q step run/log.jsonl"), "the log is lost");
    succeed("run -o p.html");
    cr_expect(strstr(out, "p.html"));
    succeed("run 'again=run'");
    json_t *data;
    read_page("run/report.html");
    cr_expect_str_eq(json_string_value(json_object_get(run_of(&data, 1), "name")), "again");
    json_decref(data);
    cr_assert(mkdir("a=b", 0777) == 0);
    put("a=b/log.jsonl", "{\"step\":1}\n");
    succeed("a=b");
    cr_expect(access("a=b/report.html", F_OK) == 0, "a folder with '=' in its name");
    cr_assert(chdir("run") == 0);
    succeed(". -o ../page.html");
    read_page("../page.html");
    cr_expect_eq(count("<title>run</title>"), 1, "the name of the folder");
    end();
}

/* ---- the engine ---- */

#define TRAIN "train --shapes 40 --batch 8 --workers 1 --epochs 2 --log-every 2 --profile --report "

Test(report, of_a_run)
{
    json_t *data, *config;
    program_begin("imagenet");
    succeed(TRAIN "--run-dir run");
    read_page("run/report.html");
    const json_t *run = run_of(&data, 0), *log = json_object_get(run, "log");
    cr_expect_eq(value(run, "step", json_array_size(values(run, "step")) - 1), 10,
                 "written after the last validation");
    cr_expect_eq(json_integer_value(json_object_get(log, "validations")), 2);
    cr_expect_gt(json_array_size(json_object_get(log, "ops")), 5);
    cr_expect_gt(value(run, "process", 0), value(run, "memory", 0));
    config = json_object_get(run, "config");
    json_t *preset = json_object_get(config, "preset_values");
    cr_expect_eq(json_integer_value(json_object_get(preset, "shapes")), 2000);
    cr_expect(!json_object_get(preset, "lr"), "the program chose it, not a flag");
    cr_expect_gt(
        json_integer_value(json_object_get(json_object_get(config, "memory_plan"), "peak")),
        100000);
    cr_expect(json_string_value(json_object_get(json_object_get(config, "machine"), "processor")));
    json_decref(data);

    succeed("train --resume --run-dir run"); /* nothing to do; config.json is written again */
    config = json_load_file("run/config.json", 0, NULL);
    preset = json_object_get(config, "preset_values");
    cr_expect(json_object_get(preset, "shapes") && !json_object_get(preset, "lr"));
    json_decref(config);
    end();
}

/* Pages are sent to others: files that only a link reaches are omitted, and the page says so. */
Test(report, links_are_not_followed)
{
    json_t *data;
    char why[1000] = "";
    const char *const linked[] = { "linked" }, *const odd[] = { "odd" };
    begin();
    cr_assert(mkdir("elsewhere", 0777) == 0 && mkdir("run/own", 0777) == 0 &&
              mkdir("odd", 0777) == 0);
    put("elsewhere/secret.txt", "the secret");
    put("elsewhere/sample.txt", "the secret of a folder");
    put("elsewhere/config.json", "{\"program\":\"the secret of a program\"}");
    put("elsewhere/a.svg", "<svg xmlns='http://www.w3.org/2000/svg'>the secret</svg>");
    put("run/log.jsonl", "{\"step\":1}\n");
    put("run/own/sample.txt", "what is shown");
    put("run/own/hard.txt", "not a sample");
    cr_assert(symlink("../elsewhere/secret.txt", "run/sample1.txt") == 0);
    cr_assert(symlink("../elsewhere/a.svg", "run/a.svg") == 0);
    cr_assert(symlink("../elsewhere", "run/folder") == 0);
    cr_assert(symlink("../../elsewhere/secret.txt", "run/own/sample2.txt") == 0);
    cr_assert(symlink("nowhere", "run/sample3.txt") == 0);
    cr_assert(symlink("../elsewhere/config.json", "run/config.json") == 0);
    const json_t *run = write_report(&data);
    cr_expect_eq(json_array_size(json_object_get(run, "files")), 1);
    cr_expect(strstr(page, "what is shown") && !strstr(page, "the secret"));
    cr_expect(noted(run, "5 links in the folder are not followed"), "links are noted");
    cr_expect(noted(run, "config.json is a link, which is not followed"));
    json_decref(data);
    cr_assert(symlink("run", "linked") == 0); /* the named folder may be one */
    cr_expect(tp_report_write("page.html", linked, 1, why, sizeof why), "%s", why);
    cr_assert(symlink("../run/log.jsonl", "odd/log.jsonl") == 0);
    cr_expect_not(tp_report_write("page.html", odd, 1, why, sizeof why));
    cr_expect_str_eq(why, "odd/log.jsonl is a link (none is followed), not the log of a run");
    end();
}

Test(report, a_page_that_cannot_be_written_is_a_warning)
{
    program_begin("imagenet");
    cr_assert(mkdir("run", 0777) == 0 && mkdir("run/report.html", 0777) == 0);
    succeed(TRAIN "--run-dir run");
    cr_expect(strstr(out, "warning: no page of this run: run/report.html"), "%s", out);
    cr_expect(strstr(out, "Done: 10 updates"), "%s", out);
    end();
}
