/* progress.c - the progress line: position, bar, the program's text, ETA. Training runs print it on
 * stdout and leave it there; other commands on stderr, and erase it. */
#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "terminal.h"

/* ---- the line ---- */

enum {
    LINE = 1024,
    LEAST_BAR = 10, /* shown on a terminal if this much fits beside position and ETA */
    MOST_BAR = 30
};

void tp__print_time(char *text, size_t size, double seconds)
{
    const long long s = (long long)(fmin(seconds, 1e15) + 0.5);
    if (s >= 86400)
        snprintf(text, size, "%lldd%02lldh", s / 86400, s % 86400 / 3600);
    else if (s >= 3600)
        snprintf(text, size, "%lld:%02lld:%02lld", s / 3600, s % 3600 / 60, s % 60);
    else
        snprintf(text, size, "%lld:%02lld", s / 60, s % 60);
}

/* The width of n bytes of UTF-8. */
static int width(const char *text, size_t n)
{
    int columns = 0;
    for (size_t i = 0; i < n; i++) columns += (text[i] & 0xc0) != 0x80;
    return columns;
}

/* The number of bytes of the fields that fit into `columns`. */
static size_t fitting(const char *text, int columns)
{
    size_t fits = 0;
    for (const char *s = text; *s; s += strspn(s, " ")) {
        const char *gap = strstr(s, "  ");
        s = gap ? gap : s + strlen(s);
        if (width(text, (size_t)(s - text)) > columns) break;
        fits = (size_t)(s - text);
    }
    return fits;
}

/* " [####----]", `bar` columns inside. */
static void print_bar(char *to, size_t size, int bar, const tp_progress_text *what, bool colour)
{
    static const char full[] = "##############################";
    static const char rest[] = "------------------------------";
    const double part = what->last > 0 ? (double)what->done / (double)what->last : 1;
    const int done = (int)(fmin(fmax(part, 0), 1) * bar);
    to[0] = '\0';
    if (bar > 0)
        snprintf(to, size, " [%s%.*s%s%.*s]", colour ? "\033[32m" : "", done, full,
                 colour ? "\033[0m" : "", bar - done, rest);
}

static int clamp(int x, int least, int most)
{
    return x < least ? least : x > most ? most : x;
}

void tp__progress_print(char *line, size_t size, const tp_progress_text *what, int columns,
                        bool colour)
{
    char head[128], bar[96], time[32], tail[48] = "";
    const int bracket = 3; /* " []" */
    snprintf(head, sizeof head, "%s %lld/%lld", what->unit, (long long)what->done,
             (long long)what->last);
    tp__print_time(time, sizeof time, what->left);
    if (!isnan(what->left)) snprintf(tail, sizeof tail, "  ETA %s", time);
    size_t n = strlen(what->text);
    int inside = 0;
    if (columns > 0) { /* the last column is kept for the cursor */
        int room = columns - 1 - width(head, strlen(head)) - width(tail, strlen(tail));
        const bool barred = room >= bracket + LEAST_BAR;
        if (barred) room -= bracket + LEAST_BAR;
        n = fitting(what->text, room - 2);
        if (barred)
            inside = clamp(LEAST_BAR + room - (n > 0 ? width(what->text, n) + 2 : 0), 0, MOST_BAR);
    }
    print_bar(bar, sizeof bar, inside, what, colour);
    snprintf(line, size, "%s%s%s%.*s%s", head, bar, n > 0 ? "  " : "", (int)n, what->text, tail);
    if (columns > 0 && inside == 0 && (int)strlen(line) >= columns) line[columns - 1] = '\0';
}

static void draw(tp_ticker *t, FILE *out, const tp_progress_text *what)
{
    char line[LINE];
    tp__progress_print(line, sizeof line, what, t->terminal ? tp__columns(out) : 0,
                       tp__has_colours(out));
    fprintf(out, t->terminal ? "\r%s\033[K" : "%s\n", line);
    fflush(out);
    t->drawn = tp_seconds();
    t->shown = t->terminal;
}

static void clear(tp_ticker *t, FILE *out)
{
    if (t->shown) fputs("\r\033[K", out);
    t->shown = false;
}

/* Has enough time passed since the line was drawn? */
static bool is_due(const tp_ticker *t, double seconds)
{
    return tp_seconds() - t->drawn > seconds;
}

/* Seconds from `done` to the end at the mean speed since `first`; NaN before anything is done. */
static double remaining(const tp_ticker *t, int64_t first, int64_t done)
{
    if (done <= first) return (double)NAN;
    const double passed = tp_seconds() - t->began;
    return fmax(passed / (double)(done - first) * (double)(t->last - done), 0);
}

static tp_ticker ticker(const char *unit, int64_t last, FILE *out)
{
    const double now = tp_seconds();
    return (tp_ticker){
        .unit = unit, .last = last, .began = now, .drawn = now, .terminal = tp__is_terminal(out)
    };
}

/* ---- commands ---- */

tp_ticker tp_ticker_start(const char *unit, int64_t last)
{
    return ticker(unit, last, stderr);
}

bool tp_ticker_due(const tp_ticker *t)
{
    if (!t) return false;
    return is_due(t, t->terminal ? 0.2 : 60);
}

void tp_ticker_draw(tp_ticker *t, int64_t done, const char *fmt, ...)
{
    if (!t) return;
    char text[LINE];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    draw(t, stderr, &(tp_progress_text){ t->unit, text, done, t->last, remaining(t, 0, done) });
}

void tp_ticker_end(tp_ticker *t)
{
    if (!t) return;
    clear(t, stderr);
}

/* ---- training runs ---- */

void tp__progress_start(tp_progress *p, int64_t first, int64_t last, double limit, bool silent)
{
    *p = (tp_progress){
        .silent = silent, .line = ticker("step", last, stdout), .first = first, .limit = limit
    };
}

void tp__progress_step(tp_progress *p, int64_t step, bool report, const char *what)
{
    tp_ticker *t = &p->line;
    if (p->silent || (!report && (!t->terminal || !is_due(t, 0.2)))) return;
    double left = remaining(t, p->first, step);
    if (p->limit > 0) left = fmax(fmin(left, p->limit - (tp_seconds() - t->began)), 0);
    draw(t, stdout, &(tp_progress_text){ t->unit, what, step, t->last, left });
}

void tp__progress_say(tp_progress *p, const char *fmt, va_list ap)
{
    char text[8192];
    if (p->silent) return;
    clear(&p->line, stdout);
    vsnprintf(text, sizeof text, fmt, ap);
    tp__print_plain(stdout, text);
    printf("\n");
    fflush(stdout);
}

void tp__progress_end(tp_progress *p)
{
    if (p->line.shown) printf("\n");
    fflush(stdout);
    p->line.shown = false;
}
