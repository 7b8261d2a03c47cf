/* report.c - reads runs and fills in their page's template.
 *
 * All content from files reaches the page as JSON in a <script> that is not run, without a single
 * '<'; page.js inserts it as text. The page is one file without libraries, and its content security
 * policy forbids every request. Only title and table of results, for browsers without
 * JavaScript, are written as HTML, with the special characters escaped. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/file.h>
#include <tapegrad/report.h>
#include <time.h>
#include <unistd.h>

#include "../options_inner.h"
#include "report.h"

enum {
    PIECES = 800,       /* in all logs */
    ROOM = 1000 * 1000, /* total bytes of pictures and texts */
};

/* ---- runs ---- */

static const char *text_in(const json_t *config, const char *key)
{
    return json_string_value(json_object_get(config, key));
}

/* The object in config.json; an empty one if it cannot be read. */
static json_t *read_config(const char *folder, json_t *notes)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/config.json", folder);
    const bool link = tp__report_link(path);
    json_t *config = link ? NULL : tp__config_read(path, NULL, 0);
    if (config) return config;
    tp__report_note(notes, "config.json is %s, so the settings are unknown.",
                    link ? "a link, which is not followed" : "missing or damaged");
    return json_object();
}

/* The last part of a path. */
static void last_part(const char *path, char *name, size_t size)
{
    size_t end = strlen(path), begin;
    while (end > 1 && path[end - 1] == '/') end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/'; begin--) {
    }
    snprintf(name, size, "%.*s", (int)(end - begin), path + begin);
}

/* `spec` is FOLDER or NAME=FOLDER; a folder that exists may have '=' in its name. */
static const char *folder_of(const char *spec, char *name, size_t size)
{
    struct stat s;
    const char *equals = strchr(spec, '=');
    if (equals && equals > spec && stat(spec, &s) != 0) {
        snprintf(name, size, "%.*s", (int)(equals - spec), spec);
        return equals + 1;
    }
    char here[4096];
    const bool is_here = strcmp(spec, ".") == 0 && getcwd(here, sizeof here);
    last_part(is_here ? here : spec, name, size);
    return spec;
}

static json_t *read_run(const char *spec, int n, size_t *room, char *why, size_t size)
{
    char name[256];
    struct stat s;
    const char *folder = folder_of(spec, name, sizeof name);
    if (strlen(folder) >= 4096 || stat(folder, &s) != 0) {
        snprintf(why, size, "run folder %.200s: %s; name the folder of a run (--run-dir)", folder,
                 strlen(folder) >= 4096 ? "the name is too long" : strerror(errno));
        return NULL;
    }
    json_t *notes = json_array(), *config = read_config(folder, notes), *run = NULL;
    const char *score = text_in(config, "score");
    const bool higher =
        score ? json_is_true(json_object_get(config, "higher"))
              : !text_in(config, "program") || strcmp(text_in(config, "program"), "imagenet") == 0;
    json_t *log = tp__report_log(folder, text_in(config, "unit"), score, higher, PIECES / n, notes,
                                 why, size);
    if (log) {
        run = json_pack("{s:o,s:o,s:o,s:o}", "name", tp__report_text(name, strlen(name)), "folder",
                        tp__report_text(folder, strlen(folder)), "log", log, "files",
                        tp__report_files(folder, room, notes));
        json_object_set(run, "config", config);
        json_object_set(run, "notes", notes);
    }
    json_decref(config);
    json_decref(notes);
    if (!run && log) snprintf(why, size, "%s: out of memory", folder);
    return run;
}

/* ---- the page ---- */

typedef struct page {
    FILE *f;
    json_t *runs;
    char title[600];
    bool failed; /* memory ran out */
} page;

static void put_escaped(FILE *f, const char *s)
{
    for (; *s; s++) switch (*s) {
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        case '&': fputs("&amp;", f); break;
        case '"': fputs("&quot;", f); break;
        default: fputc(*s, f);
        }
}

static void put_number(FILE *f, const json_t *x)
{
    if (json_is_number(x))
        fprintf(f, "<td>%.6g</td>", json_number_value(x));
    else
        fputs("<td></td>", f);
}

static void put_results(const page *p)
{
    size_t i;
    json_t *run;
    json_array_foreach(p->runs, i, run)
    {
        const json_t *log = json_object_get(run, "log"), *last = json_object_get(log, "last");
        const char *score = text_in(log, "score");
        fputs("      <tr><td>", p->f);
        put_escaped(p->f, text_in(run, "name"));
        fputs("</td>", p->f);
        put_number(p->f, json_object_get(last, "step"));
        put_number(p->f, json_object_get(last, "loss"));
        put_number(p->f, score ? json_object_get(json_object_get(log, "best"), score) : NULL);
        fputs("</tr>\n", p->f);
    }
}

/* Writes ASCII without '<': nothing in it can end the script or open a comment. */
static void put_data(page *p)
{
    json_t *data = json_pack("{s:O}", "runs", p->runs);
    char *text = json_dumps(data, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
    for (const char *s = text; s && *s; s++)
        if (*s == '<')
            fputs("\\u003c", p->f);
        else
            fputc(*s, p->f);
    p->failed = !text;
    free(text);
    json_decref(data);
}

static void put_date(FILE *f)
{
    char text[64];
    struct tm t;
    const time_t now = time(NULL);
    if (localtime_r(&now, &t) && strftime(text, sizeof text, "%Y-%m-%d %H:%M", &t)) fputs(text, f);
}

static void put_field(page *p, const char *name, size_t n)
{
    const struct {
        const char *name, *text;
    } texts[] = {
        { "style", tp__report_style_css },
        { "chart", tp__report_chart_js },
        { "page", tp__report_page_js },
        { "version", tp_version() },
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strlen(texts[i].name) == n && memcmp(texts[i].name, name, n) == 0)
            fputs(texts[i].text, p->f);
    if (n == 5 && memcmp(name, "title", n) == 0) put_escaped(p->f, p->title);
    if (n == 7 && memcmp(name, "results", n) == 0) put_results(p);
    if (n == 4 && memcmp(name, "data", n) == 0) put_data(p);
    if (n == 4 && memcmp(name, "date", n) == 0) put_date(p->f);
}

static void fill(page *p)
{
    const char *s = tp__report_template_html, *open, *close;
    while ((open = strstr(s, "{{")) && (close = strstr(open, "}}"))) {
        fwrite(s, 1, (size_t)(open - s), p->f);
        put_field(p, open + 2, (size_t)(close - open - 2));
        s = close + 2;
    }
    fputs(s, p->f);
}

static void set_title(page *p)
{
    size_t used = 0, i;
    json_t *run;
    json_array_foreach(p->runs, i, run)
    {
        const int k = snprintf(p->title + used, sizeof p->title - used, "%s%s", i ? ", " : "",
                               text_in(run, "name"));
        if (k > 0) used += (size_t)k;
        if (used < sizeof p->title - 80) continue;
        snprintf(p->title + sizeof p->title - 80, 8, "...");
        break;
    }
}

static bool write_page(const char *path, json_t *runs, char *why, size_t size)
{
    page p = { .runs = runs };
    char *text = NULL;
    size_t bytes = 0;
    set_title(&p);
    p.f = open_memstream(&text, &bytes);
    if (p.f) fill(&p);
    const bool complete = p.f && !p.failed && !ferror(p.f);
    const bool closed = p.f && fclose(p.f) == 0;
    const bool done = complete && closed && tp_file_replace(path, text, bytes, why, size);
    if (!complete || !closed) snprintf(why, size, "%s cannot be written: out of memory", path);
    free(text);
    return done;
}

bool tp_report_write(const char *path, const char *const *runs, int n, char *why, size_t size)
{
    if (!path) {
        if (why) snprintf(why, size, "report_write: NULL was given in place of a text");
        return false;
    }
    json_t *all = json_array();
    size_t room = ROOM;
    const bool named = tp_ends_in(path, ".html") || tp_ends_in(path, ".htm");
    bool done = named && n > 0 && n <= PIECES / 4;
    void *locale = tp_c_locale_begin(); /* logs and page */
    if (!named)
        snprintf(why, size, "%.1000s was not written: end the name of the page in .html", path);
    else if (!done)
        snprintf(why, size, "a page holds 1 to %d runs, not %d", PIECES / 4, n);
    for (int i = 0; done && i < n; i++) {
        json_t *run = read_run(runs[i], n, &room, why, size);
        done = run && json_array_append_new(all, run) == 0;
    }
    done = done && write_page(path, all, why, size);
    json_decref(all);
    tp_c_locale_end(locale);
    return done;
}
