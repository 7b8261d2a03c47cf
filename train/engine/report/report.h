/* report.h - the parts of a page about runs.
 *
 *     tp_report_write   report.c         reads the runs, fills in the template
 *     a run's log       report_log.c     thins log.jsonl to the points that a chart shows
 *     its other files   report_files.c   pictures and texts
 *     the template      template.html, style.css, chart.js, page.js; see cmake/embed.cmake */
#ifndef TP_REPORT_H
#define TP_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* The template's files, zero-terminated. */
extern const char tp__report_template_html[], tp__report_style_css[], tp__report_chart_js[],
    tp__report_page_js[];

/* Reads a run's log.jsonl for page.js. score: the key of the validation score, NULL if unknown;
 * higher: a higher one is better. Keeps the lines with the extremes of at most `most` pieces of the
 * log. Adds what is damaged to notes. NULL with the reason in why. */
json_t *tp__report_log(const char *folder, const char *unit, const char *score, bool higher,
                       int most, json_t *notes, char *why, size_t size);

/* The folder's pictures and texts that fit into *room bytes, which decreases. */
json_t *tp__report_files(const char *folder, size_t *room, json_t *notes);

/* Is the file or folder a symbolic link? Links are not followed. */
bool tp__report_link(const char *path);

/* A JSON string of n zero-terminated bytes; invalid UTF-8 becomes U+FFFD. */
json_t *tp__report_text(const char *bytes, size_t n);

/* Adds a sentence to the notes of a run. */
void tp__report_note(json_t *notes, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
