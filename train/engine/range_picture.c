/* range_picture.c - losses over learning rates as an SVG, in the style of the programs' pictures.
 * It needs no other program, and the page about a run (tp-report) shows it.
 *
 * Losses far above those before the lowest one would flatten the curve, so the axis ends a little
 * above these, and what is beyond it is cut off. */
#include "range.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

enum { WIDTH = 760, HEIGHT = 460, LEFT = 76, RIGHT = 24, TOP = 72, BOTTOM = 56 };

/* The text so far, and the ranges of the axes. */
typedef struct picture {
    char *text;
    size_t used, room;
    bool starved;
    double least_x, most_x; /* logarithms to base 10 */
    double least_y, most_y;
} picture;

static void put(picture *p, const char *fmt, ...) TP_PRINTF(2, 3);
static void put(picture *p, const char *fmt, ...)
{
    enum { LINE = 600 };
    va_list ap;
    if (p->starved || !tp_reserve(&p->text, &p->room, p->used, LINE, 1)) {
        p->starved = true;
        return;
    }
    va_start(ap, fmt);
    const int n = vsnprintf(p->text + p->used, LINE, fmt, ap);
    va_end(ap);
    p->used += n < 0 ? 0 : n < LINE ? (size_t)n : LINE - 1;
}

static double across(const picture *p, double lr)
{
    const double part = (log10(lr) - p->least_x) / (p->most_x - p->least_x);
    return LEFT + part * (WIDTH - LEFT - RIGHT);
}

/* Clamped, since viewers cut off what is outside, but not at any distance. */
static double up(const picture *p, double loss)
{
    const double part = (loss - p->least_y) / (p->most_y - p->least_y);
    return HEIGHT - BOTTOM - fmax(fmin(part, 10), -10) * (HEIGHT - TOP - BOTTOM);
}

/* ---- axes ---- */

static void find_ranges(picture *p, const tp_range *g)
{
    double least = g->smooth[g->lowest], most = least;
    for (int64_t i = 0; i <= g->lowest; i++) { /* fmin and fmax pass over NaN */
        least = fmin(least, fmin(g->loss[i], g->smooth[i]));
        most = fmax(most, fmax(g->loss[i], g->smooth[i]));
    }
    const double room = fmax(0.1 * (most - least), 1e-3 * fmax(fabs(most), 1e-6));
    p->least_x = log10(g->from);
    p->most_x = log10(g->to);
    p->least_y = least - room;
    p->most_y = most + 2 * room;
}

static void put_line(picture *p, double x1, double y1, double x2, double y2, const char *colour)
{
    put(p, "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='%s'/>\n", x1, y1, x2, y2, colour);
}

static void put_text(picture *p, double x, double y, const char *anchor, const char *text)
{
    put(p, "<text x='%.1f' y='%.1f' text-anchor='%s'>%s</text>\n", x, y, anchor, text);
}

/* A tick at each power of ten, or at the ends if there are fewer than two. */
static void put_rates(picture *p, const tp_range *g)
{
    const double first = ceil(p->least_x - 1e-9), last = floor(p->most_x + 1e-9);
    const double ends[] = { g->from, g->to };
    const bool powers = last - first >= 1;
    const int n = powers ? (int)(last - first) + 1 : 2;
    const int every = n > 12 ? 1 + n / 12 : 1;
    for (int k = 0; k < n; k += every) {
        char label[40];
        const double lr = powers ? pow(10, first + k) : ends[k % 2];
        snprintf(label, sizeof label, "%.4g", lr);
        put_line(p, across(p, lr), TOP, across(p, lr), HEIGHT - BOTTOM, "#e0e0e0");
        put_text(p, across(p, lr), HEIGHT - BOTTOM + 18, "middle", label);
    }
}

static void put_losses(picture *p)
{
    const double range = p->most_y - p->least_y, power = pow(10, floor(log10(range / 4)));
    const double ratio = range / 4 / power;
    const double step = power * (ratio < 2 ? 1 : ratio < 5 ? 2 : 5);
    for (double k = ceil(p->least_y / step); k * step <= p->most_y; k++) {
        char label[40];
        const double loss = k == 0 ? 0 : k * step;
        snprintf(label, sizeof label, "%.6g", loss);
        put_line(p, LEFT, up(p, loss), WIDTH - RIGHT, up(p, loss), "#e0e0e0");
        put_text(p, LEFT - 8, up(p, loss) + 4, "end", label);
    }
}

static void put_axes(picture *p, const tp_range *g)
{
    put_rates(p, g);
    put_losses(p);
    put_line(p, LEFT, TOP, LEFT, HEIGHT - BOTTOM, "#606060");
    put_line(p, LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "#606060");
    put_text(p, 0.5 * (LEFT + WIDTH - RIGHT), HEIGHT - 14, "middle", "learning rate");
    put(p, "<text transform='translate(18,%.1f) rotate(-90)' text-anchor='middle'>loss</text>\n",
        0.5 * (TOP + HEIGHT - BOTTOM));
}

/* ---- curves ---- */

/* Breaks the line where a value is not finite. */
static void put_curve(picture *p, const tp_range *g, const double *y, const char *look)
{
    bool down = false;
    put(p, "<path clip-path='url(#plot)' fill='none' %s d='", look);
    for (int64_t i = 0; i < g->n; i++) {
        const bool finite = isfinite(y[i]);
        if (finite) put(p, "%s%.1f %.1f", down ? " L" : " M", across(p, g->lr[i]), up(p, y[i]));
        down = finite;
    }
    put(p, "'/>\n");
}

static void put_mark(picture *p, const tp_range *g, int64_t i, const char *colour)
{
    put(p, "<circle cx='%.1f' cy='%.1f' r='5' fill='%s'/>\n", across(p, g->lr[i]),
        up(p, g->smooth[i]), colour);
}

/* The name of the program without what would be markup. */
static void put_title(picture *p, const tp_range *g, const char *program)
{
    char name[80];
    size_t n = 0;
    for (const char *c = program; *c && n + 1 < sizeof name; c++)
        if (!strchr("<>&'\"", *c)) name[n++] = *c;
    name[n] = '\0';
    put(p, "<text x='%d' y='26' font-size='15'>Loss by learning rate: %s</text>\n", LEFT, name);
    put(p, "<text x='%d' y='48'>Thin: each update. Thick: smoothed", LEFT);
    if (g->steepest > 0) put(p, "; green: it falls fastest, at %.3g", g->lr[g->steepest]);
    put(p, "; red: lowest, at %.3g", g->lr[g->lowest]);
    put(p, "%s</text>\n", g->diverged ? "; then it diverges." : ".");
}

bool tp__range_draw(const tp_range *g, const char *program, const char *path, char *why,
                    size_t size)
{
    picture p = { 0 };
    void *locale = tp_c_locale_begin();
    find_ranges(&p, g);
    put(&p,
        "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d' "
        "font-family='sans-serif' font-size='12' fill='#202020'>\n"
        "<rect width='100%%' height='100%%' fill='#ffffff'/>\n"
        "<clipPath id='plot'><rect x='%d' y='%d' width='%d' height='%d'/></clipPath>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    put_title(&p, g, program);
    put_axes(&p, g);
    put_curve(&p, g, g->loss, "stroke='#1f77b4' stroke-opacity='0.4'");
    put_curve(&p, g, g->smooth, "stroke='#1f77b4' stroke-width='2.5'");
    if (g->steepest > 0) put_mark(&p, g, g->steepest, "#2ca02c");
    put_mark(&p, g, g->lowest, "#d62728");
    put(&p, "</svg>\n");
    tp_c_locale_end(locale);
    const bool done = !p.starved && tp_file_replace(path, p.text, p.used, why, size);
    if (p.starved) snprintf(why, size, "%s cannot be written: out of memory", path);
    free(p.text);
    return done;
}
