/* report.h - the parts of the page about runs.
 *
 *     tp_report_write   report.c         reads the runs, fills in the template
 *     a run's log       report_log.c     thins log.jsonl to the points that a chart shows
 *     its other files   report_files.c   pictures and texts
 *     the template      template.html, style.css, chart.js, page.js, embedded by cmake/embed.cmake */
#ifndef TP_REPORT_H
#define TP_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* The files of the template, each ended by a zero. */
extern const char tp__report_template_html[], tp__report_style_css[], tp__report_chart_js[],
    tp__report_page_js[];

/* What log.jsonl says of a run: see page.js. score: the key of the validation's score, or NULL if it
 * is unknown; higher: a higher one is better. Keeps the lines with the extremes of at most `most`
 * pieces of the log. Adds what is damaged to notes. NULL with the reason in why. */
json_t *tp__report_log(const char *folder, const char *unit, const char *score, bool higher,
                       int most, json_t *notes, char *why, size_t size);

/* Pictures and texts of the folder, as far as *room bytes reach; takes their size from it. */
json_t *tp__report_files(const char *folder, size_t *room, json_t *notes);

/* Is the file or folder a symbolic link? What it leads to is not shown. */
bool tp__report_link(const char *path);

/* A JSON string of n bytes that a zero follows: what is not UTF-8 becomes U+FFFD. */
json_t *tp__report_text(const char *bytes, size_t n);

/* Adds a sentence to the notes of a run. */
void tp__report_note(json_t *notes, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
