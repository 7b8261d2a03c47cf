/* test_report_page.c - the page of tp-report in a headless Chromium: curves, keys, pointer, hostile
 * texts, phone, dark, no scripts, no network. Skipped without Chromium. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/file.h>
#include <tapegrad/report.h>

#include "support/browser.h"
#include "support/files.h"
#include "support/folder.h"
#include "support/program.h"

#define EVIL "</script><script>window.hacked = 1</script>\\\"'<img src=x onerror='hacked=1'>"
#define SVG                                                                                        \
    "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'>"                                \
    "<script>fetch('http://example.invalid/a')</script>"                                           \
    "<image href='http://example.invalid/b' width='9' height='9'/></svg>"

enum { LINES = 40 };

static double loss_at(int run, int line)
{
    return 4.0 / line + 0.25 * run + 0.125;
}

/* A run with LINES reports, every tenth with a validation; report 20 of run 0 has no loss. */
static void make_run(const char *name, int n)
{
    char path[200], config[1000];
    cr_assert(tp_make_folders(name, path, sizeof path));
    snprintf(path, sizeof path, "%s/log.jsonl", name);
    FILE *f = fopen(path, "w");
    for (int i = 1; i <= LINES; i++) {
        fprintf(f, "{\"step\":%d,\"images\":%d,\"seconds\":%d", 10 * i, 320 * i, 2 * i);
        if (n == 0 && i == 20)
            fprintf(f, ",\"loss\":null");
        else
            fprintf(f, ",\"loss\":%.9g", loss_at(n, i));
        fprintf(f, ",\"lr\":0.%03d,\"memory\":9000000,\"constructor\":%d", i, i);
        if (i > 30) fprintf(f, ",\"__proto__\":%d,\"toString\":1", i);
        if (i % 10 == 0) fprintf(f, ",\"test_loss\":%.9g", loss_at(n, i) + 0.5);
        if (i == LINES) fprintf(f, ",\"ops\":[[\"linear\",\"forward\",40,1.5]]");
        fprintf(f, "}\n");
    }
    fclose(f);
    snprintf(path, sizeof path, "%s/config.json", name);
    snprintf(config, sizeof config,
             "{\"program\":\"p\",\"unit\":\"images\",\"score\":\"test_loss\",\"higher\":false,"
             "\"settings\":{\"lr\":0.%d,\"data\":\"" EVIL
             "\",\"preset\":\"tiny\",\"__proto__\":1,\"x\":[2],\"steps\":0},"
             "\"derived\":{\"steps\":%d},"
             "\"parameters\":\"many\",\"machine\":[7],\"updates\":{},"
             "\"preset_values\":{\"lr\":0.5},"
             "\"memory_plan\":{\"weights\":1000000,\"activations\":7000000,\"peak\":8000000}}",
             n + 1, 10 + n);
    write_bytes(path, config, strlen(config));
}

static void make_page(void)
{
    char why[1000] = "";
    const char *const runs[] = { "first", "second" };
    make_run("first", 0);
    make_run("second", 1);
    write_bytes("first/map.svg", SVG, strlen(SVG));
    write_bytes("second/samples.txt", EVIL, strlen(EVIL));
    cr_assert(tp_report_write("page.html", runs, 2, why, sizeof why), "%s", why);
}

static void begin(void)
{
    program_begin("");
    if (!browser_open()) {
        program_end();
        cr_skip_test("there is no chromium: apt-get install chromium");
    }
    make_page();
}

static void end(void)
{
    cr_expect_str_eq(complaints, "", "the page complains or leaves the machine:\n%s", complaints);
    browser_close();
    program_end();
}

/* Presses Tab until the element with this id, or of this selector, has the focus. */
static void tab_to(const char *selector)
{
    char test[400];
    snprintf(test, sizeof test, "document.activeElement.matches('%s')", selector);
    for (int i = 0; i < 100; i++) {
        if (page_number(test) == 1) return;
        press("Tab");
    }
    cr_assert_fail("Tab does not lead to %s", selector);
}

#define COUNT(selector) page_number("document.querySelectorAll('" selector "').length")

Test(report_page, shows_the_log)
{
    begin();
    browser_look("light", 1100, 900);
    browse("page.html");
    cr_expect_eq(COUNT("path.curve.training"), 2);
    cr_expect_eq(COUNT("path.curve.validation"), 2);
    cr_expect_eq(COUNT("#chart circle"), 2 * LINES / 10, "a dot per validation");
    cr_expect_eq(
        page_number("(document.querySelector('path.training[data-run=first]').getAttribute("
                    "'d').match(/M/g) || []).length"),
        2, "a value that is no number leaves a gap");
    cr_expect_eq(page_number("(document.querySelector('path.training[data-run=second]')"
                             ".getAttribute('d').match(/[ML]/g) || []).length"),
                 LINES);
    for (int run = 0; run < 2; run++)
        for (int i = 1; i <= LINES / 10; i++) {
            char cell[400], value[40];
            snprintf(cell, sizeof cell,
                     "document.querySelectorAll('[aria-label=Validations]')[%d].querySelectorAll("
                     "'tbody tr')[%d].lastElementChild.textContent.replace('best ', '')",
                     run, i - 1);
            snprintf(value, sizeof value, "%.6g", loss_at(run, 10 * i) + 0.5);
            cr_expect_str_eq(page_text(cell), value);
        }
    cr_expect_eq(COUNT("[aria-label=Validations] tr.best"), 2, "the best of each run is marked");
    const char *differ =
        page_text("document.querySelector('[aria-label=\"Settings that differ\"]').textContent");
    cr_expect(strstr(differ, "lr0.10.2") && strstr(differ, "steps1011"), "%s", differ);
    cr_expect(strstr(page_text("document.querySelector('[aria-label=Memory]').textContent"),
                     "peak of a step8.0 MB9.0 MB112.5 %"));
    cr_expect(strstr(page_text("document.querySelector('[aria-label=\"Time by op\"]').textContent"),
                     "linearforward401.5"));
    end();
}

/* Of the 200 ms of an update. */
Test(report_page, exchange_of_gradients)
{
    static const char log[] = "{\"step\":10,\"seconds\":2,\"loss\":1,\"exchange_hidden\":0.03,"
                              "\"exchange_exposed\":0.01}\n";
    static const char config[] = "{\"program\":\"p\",\"unit\":\"images\",\"machine\":{"
                                 "\"processes\":2}}";
    const char *const runs[] = { "joint" };
    char why[1000] = "";
    begin();
    cr_assert(shell("mkdir joint"));
    write_bytes("joint/log.jsonl", log, strlen(log));
    write_bytes("joint/config.json", config, strlen(config));
    cr_assert(tp_report_write("page.html", runs, 1, why, sizeof why), "%s", why);
    browse("page.html");
    cr_expect(
        strstr(page_text("document.querySelector('[aria-label=\"Exchange of gradients\"]')"
                         ".textContent"),
               "computing160 ms80 %exchange behind backward30 ms15 %exchange exposed10 ms5 %"));
    cr_expect(strstr(page_text("document.querySelector('[aria-label=Machine]').textContent"),
                     "processes2"));
    end();
}

Test(report_page, is_harmless)
{
    begin();
    browse("page.html");
    cr_expect(isnan(page_number("window.hacked")), "a text became a script");
    cr_expect_eq(page_number("document.scripts.length"), 2);
    cr_expect_eq(page_number("document.images.length"), 1);
    cr_expect_eq(page_number("document.images[0].naturalWidth"), 9, "the picture is drawn");
    cr_expect(strstr(page_text("document.querySelector('pre').textContent"), "<img src=x onerror"));
    cr_expect(
        strstr(page_text("document.querySelector('#sections').textContent"), "window.hacked = 1"));
    end();
}

/* A diverging run, and values beyond a chart's axes. */
Test(report_page, extreme_numbers)
{
    char why[1000] = "", log[4000] = "";
    const char *const runs[] = { "huge" };
    begin();
    cr_assert(tp_make_folders("huge", why, sizeof why));
    for (int i = 1; i <= 9; i++)
        snprintf(log + strlen(log), sizeof log - strlen(log),
                 "{\"step\":%d,\"loss\":%s3e38,\"both\":%s1e308,\"wide\":1e%d,"
                 "\"close\":899999999999999%d,\"memory\":1e300}\n",
                 i, i > 5 ? "-" : "", i % 2 ? "-" : "", 70 * i - 350, i);
    write_bytes("huge/log.jsonl", log, strlen(log));
    cr_assert(tp_report_write("page.html", runs, 1, why, sizeof why), "%s", why);
    browser_look("light", 375, 800);
    browse("page.html");
    cr_expect_eq(page_number("(() => {"
                             "  for (const q of byId('quantity').options)"
                             "    for (const log of [true, false]) {"
                             "      byId('quantity').value = q.value;"
                             "      byId('log').checked = log;"
                             "      byId('log').dispatchEvent(new Event('change'));"
                             "    }"
                             "  return byId('quantity').options.length;"
                             "})()"),
                 5);
    cr_expect_eq(page_number("document.documentElement.scrollWidth"), 375, "wider than the phone");
    cr_expect(strstr(page_text("document.getElementById('tiles').textContent"), "-3e+38"));
    end();
}

/* ---- values of wrong types ---- */

static const char *const odd_values[] = { "null",  "true",  "-7",
                                          "\"\"",  "\"x\"", "[]",
                                          "[[1]]", "{}",    "{\"toString\":1,\"valueOf\":2}" };
static const char *const config_keys[] = {
    "program",
    "unit",
    "score",
    "higher",
    "settings",
    "derived",
    "parameters",
    "machine",
    "updates",
    "preset_values",
    "memory_plan",
    "model",
    "version",
    /* in objects */
    "memory_plan\":{\"peak",
    "memory_plan\":{\"peak\":9,\"process",
    "memory_plan\":{\"peak\":9,\"weights",
    "machine\":{\"memory",
    "machine\":{\"cores",
    "settings\":{\"preset",
    "settings\":{\"",
    "preset_values\":{\"lr",
};
enum {
    ODD = sizeof odd_values / sizeof *odd_values,
    KEYS = sizeof config_keys / sizeof *config_keys
};

/* Logs whose lines differ from a program's in one respect. */
static const char *const odd_logs[] = {
    "",
    "{\"step\":1}\n",
    "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":null}\n", /* no validation, no score */
    "{\"step\":1,\"\":2,\"valid_\":3,\"test_\":4}\n{\"step\":2,\"\":2}\n",
    "{\"step\":1,\"_per_s\":null,\"x_per_s\":-1,\"seconds\":null,\"epoch\":null,\"memory\":null}\n",
    "{\"step\":1,\"loss\":\"x\",\"seconds\":\"y\",\"epoch\":[1],\"top1\":{\"a\":1},\"lr\":true}\n",
    "{\"step\":1,\"loss\":2,\"top1\":5,\"ops\":{\"a\":1}}\n{\"step\":null}\n{\"step\":\"3\"}\n[1]\n"
    "7\n",
    "{\"step\":1,\"loss\":2,\"ops\":[null,7,\"x\",[],[1,2,3,4],[{},[],0,0],[\"a\",\"b\","
    "{\"toString\":1},5],[\"a\",\"b\",\"c\",\"d\"],[\"a\",\"b\",1,-2],[\"a\",\"b\",0,1e300]]}\n",
    "{\"step\":-1,\"loss\":-2,\"top1\":-3,\"memory\":-4,\"process\":0}\n",
    "{\"a0\":1,\"a1\":1,\"a2\":1,\"a3\":1,\"a4\":1,\"a5\":1,\"a6\":1,\"a7\":1,\"a8\":1,\"a9\":1,"
    "\"b0\":1,\"b1\":1,\"b2\":1,\"b3\":1,\"b4\":1,\"b5\":1,\"b6\":1,\"b7\":1,\"b8\":1,\"b9\":1,"
    "\"c0\":1,\"c1\":1,\"c2\":1,\"c3\":1,\"c4\":1,\"c5\":1,\"c6\":1,\"c7\":1,\"c8\":1,\"c9\":1,"
    "\"d0\":1,\"d1\":1,\"d2\":1,\"step\":1,\"top1\":2}\n",
};
enum { LOGS = sizeof odd_logs / sizeof *odd_logs, RUNS = KEYS * ODD + LOGS };

static void make_odd_run(int i, char name[20])
{
    char path[100], config[500] = "{}";
    const char *log = "{\"step\":1,\"loss\":2,\"seconds\":1,\"top1\":5,\"memory\":7}\n";
    snprintf(name, 20, "odd%d", i);
    cr_assert(tp_make_folders(name, path, sizeof path));
    if (i < KEYS * ODD) {
        const char *key = config_keys[i / ODD];
        snprintf(config, sizeof config, "{\"%s\":%s%s", key, odd_values[i % ODD],
                 strchr(key, '{') ? "}}" : "}");
    } else {
        log = odd_logs[i - KEYS * ODD];
    }
    snprintf(path, sizeof path, "%.19s/config.json", name);
    write_bytes(path, config, strlen(config));
    snprintf(path, sizeof path, "%.19s/log.jsonl", name);
    write_bytes(path, log, strlen(log));
}

static void expect_whole_page(const char *what)
{
    browse("page.html");
    cr_expect(
        !strstr(page_text("document.getElementById('notices').textContent"), "cannot be shown"),
        "%s: %s", what, page_text("document.getElementById('notices').textContent"));
    page_number("(() => {"
                "  if (!byId('axis')) return 1;" /* no reports yet */
                "  for (const a of byId('axis').options)"
                "    for (const q of byId('quantity').options) {"
                "      byId('axis').value = a.value;"
                "      byId('quantity').value = q.value;"
                "      byId('axis').dispatchEvent(new Event('change'));"
                "    }"
                "  return 1;"
                "})()");
}

/* A value of a wrong type removes no part of the page, for one run or for many. */
Test(report_page, values_of_wrong_types)
{
    static char names[RUNS][20];
    const char *runs[RUNS];
    char why[1000] = "";
    begin();
    browser_look("light", 1100, 900);
    for (int i = 0; i < RUNS; i++) {
        make_odd_run(i, names[i]);
        runs[i] = names[i];
        cr_assert(tp_report_write("page.html", runs + i, 1, why, sizeof why), "%s", why);
        if (i % 3 == 0 || i >= KEYS * ODD)
            expect_whole_page(i < KEYS * ODD ? config_keys[i / ODD] : odd_logs[i - KEYS * ODD]);
    }
    for (int i = KEYS * ODD; i + 1 < RUNS; i++) {
        cr_assert(tp_report_write("page.html", runs + i, 2, why, sizeof why), "%s", why);
        expect_whole_page(odd_logs[i - KEYS * ODD]);
    }
    cr_assert(tp_report_write("page.html", runs, RUNS, why, sizeof why), "%s", why);
    expect_whole_page("all together");
    end();
}

Test(report_page, keys_reach_everything)
{
    char value[40];
    begin();
    browser_look("light", 1100, 900);
    browse("page.html");
    const char *const stops[] = { "#quantity",  "#axis",          "#log",
                                  "#smoothing", "#legend button", "#chart > svg",
                                  ".scroll",    "summary",        "pre" };
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) tab_to(stops[i]);
    cr_expect_eq(
        page_number("[...document.querySelectorAll('select, input, button, svg[tabindex]')]"
                    ".filter((e) => !(e.labels && e.labels.length) && !e.textContent.trim()"
                    " && !e.getAttribute('aria-label')).length"),
        0, "every control has a name");

    browse("page.html");
    tab_to("#quantity");
    press("ArrowDown");
    cr_expect(strstr(page_text("document.querySelector('#chart text.label').textContent"),
                     "learning rate"));
    press("ArrowUp");
    tab_to("#axis");
    press("ArrowDown");
    cr_expect(strstr(page_text("document.querySelector('#chart > svg').getAttribute('aria-label')"),
                     "by images"));
    press("ArrowUp");
    tab_to("#log");
    page_text("window.before = document.querySelector('path.curve').getAttribute('d')");
    press(" ");
    cr_expect_eq(page_number("document.querySelector('path.curve').getAttribute('d') === before"),
                 0, "logarithmic");
    tab_to("#smoothing");
    press("ArrowRight");
    cr_expect_eq(COUNT("path.raw"), 2);
    press("Home");
    tab_to("#legend button");
    press(" ");
    cr_expect_eq(COUNT("path.curve.training"), 1);
    cr_expect_str_eq(page_text("document.activeElement.getAttribute('aria-pressed')"), "false");
    press("Enter");
    cr_expect_eq(COUNT("path.curve.training"), 2);

    tab_to("#chart > svg");
    press("ArrowRight");
    press("ArrowRight");
    snprintf(value, sizeof value, "first training %.6g", loss_at(0, 2));
    cr_expect(strstr(page_text("document.querySelector('#live').textContent"), value), "%s: %s",
              value, page_text("document.querySelector('#live').textContent"));
    press("End");
    snprintf(value, sizeof value, "%.6g", loss_at(1, LINES));
    cr_expect(strstr(page_text("document.querySelector('#readout').textContent"), value));
    press("Home");
    press("+");
    cr_expect_eq(page_number("document.querySelector('#whole').disabled"), 0, "magnified");
    cr_expect_lt(COUNT("#chart circle"), 2 * LINES / 10, "validations are outside");
    press("-");
    cr_expect_eq(page_number("document.querySelector('#whole').disabled"), 1);
    press("ArrowLeft");
    press("Escape");
    cr_expect_eq(page_number("document.querySelector('#readout').hidden"), 1);
    tab_to("figure button");
    press("Enter");
    cr_expect_eq(COUNT("figure.wide"), 1);
    press("Enter");
    cr_expect_eq(COUNT("figure.wide"), 0);
    end();
}

Test(report_page, pointer)
{
    char value[40];
    begin();
    browser_look("light", 1100, 900);
    browse("page.html");
    point("#chart > svg", 0.99, 0.5);
    snprintf(value, sizeof value, "%.6g", loss_at(0, LINES));
    cr_expect(strstr(page_text("document.querySelector('#readout').textContent"), value));
    drag("#chart > svg", 0.3, 0.6);
    cr_expect_eq(page_number("document.querySelector('#whole').disabled"), 0, "magnified");
    page_text("document.querySelector('#whole').click()");
    cr_expect_eq(page_number("document.querySelector('#whole').disabled"), 1);
    end();
}

Test(report_page, looks)
{
    begin();
    browser_look("light", 360, 740);
    browse("page.html");
    cr_expect_leq(page_number("document.documentElement.scrollWidth"), 360,
                  "nothing is wider than a phone");
    cr_expect_eq(COUNT("path.curve"), 4);
    page_text("window.light = getComputedStyle(document.documentElement).backgroundColor");
    cr_expect_str_eq(page_text("light"), "rgb(255, 255, 255)");
    browser_look("dark", 360, 740);
    cr_expect_str_eq(page_text("getComputedStyle(document.documentElement).backgroundColor"),
                     "rgb(16, 20, 24)");
    browser_scripts(false);
    browse("page.html");
    cr_expect(strstr(page_text("document.querySelector('noscript').innerText"), "second"));
    end();
}
