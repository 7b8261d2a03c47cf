/* picture_panels.c - the kinds of panels as gnuplot commands. Each sets all it depends on, since
 * panels share a process. */
#include <math.h>
#include <string.h>

#include "picture_inner.h"

void put_centred(sheet *s, const char *text, double x, double y, double font, double width,
                 int degrees)
{
    fputs("set label ", s->f);
    put_text(s, text, strlen(text), font, width, false);
    fprintf(s->f, " at screen %.9g,%.9g center rotate by %d front", x / s->width, 1 - y / s->height,
            degrees);
    put_font(s, font);
    fputc('\n', s->f);
}

/* ---- curves ---- */

enum { KEY = 260 };

static void curves_size(const panel *p, double *width, double *height, margins *m)
{
    const panel_curves *c = &p->curves;
    double key = 0;
    *width = 560;
    *height = 320;
    for (int i = 0; i < c->n; i++) key = fmax(key, text_width(c->at[i].name, FONT));
    *m = (margins){ .left = 50, .right = fmin(key, KEY) + 50, .bottom = 24 };
}

static void put_curves(sheet *s, const panel *p, place at)
{
    const panel_curves *c = &p->curves;
    fprintf(s->f, "set key at screen %.9g,%.9g left top Left reverse samplen 2 spacing 1.3\n",
            (at.x + at.width + 10) / s->width, 1 - at.y / s->height);
    if (c->logarithmic) {
        fputs("set logscale xy\nset xtics (", s->f);
        for (int i = 0; c->n > 0 && i < c->at[0].n; i++)
            fprintf(s->f, "%s%.9g", i ? "," : "", c->at[0].x[i]);
        fputs(")\n", s->f);
    }
    int most = 0;
    for (int i = 0; i < c->n; i++) most = c->at[i].n > most ? c->at[i].n : most;
    if (c->whole) fprintf(s->f, "set xtics %d\n", 1 + most / 20);
    fputs("set offsets graph 0.02, graph 0.02, graph 0.04, graph 0.04\n", s->f);
    if (c->most > c->least) fprintf(s->f, "set yrange [%.9g:%.9g]\n", c->least, c->most);
    for (int i = 0; i < c->n; i++) {
        fprintf(s->f, "%s '-' with %s lt %d title ", i ? "," : "plot",
                c->plain ? "lines" : "linespoints", c->lines ? c->lines[i] : i + 1);
        put_text(s, c->at[i].name, strlen(c->at[i].name), FONT, KEY, false);
    }
    fputc('\n', s->f);
    for (int i = 0; i < c->n; i++) {
        for (int k = 0; k < c->at[i].n; k++)
            if (isfinite(c->at[i].y[k])) fprintf(s->f, "%.9g %.9g\n", c->at[i].x[k], c->at[i].y[k]);
        fputs("e\n", s->f);
    }
}

/* ---- bars ---- */

static const char *bar_text(const panel_bar *b, char buf[32])
{
    if (b->text) return b->text;
    snprintf(buf, 32, "%.3g", b->value);
    return buf;
}

static void bars_size(const panel *p, double *width, double *height, margins *m)
{
    const panel_bars *b = &p->bars;
    double names = 0, texts = 0;
    for (int i = 0; i < b->n; i++) {
        char buf[32];
        names = fmax(names, text_width(b->at[i].name, FONT));
        texts = fmax(texts, text_width(bar_text(&b->at[i], buf), FONT));
    }
    *width = 260;
    *height = 26 * fmax(b->n, 1);
    *m = (margins){ .left = fmin(names, KEY) + 10, .right = fmin(texts, KEY) + 12, .bottom = 24 };
}

static void put_bars(sheet *s, const panel *p)
{
    static const char *const colours[] = {
        [COLOUR_PLAIN] = "0x1f77b4", [COLOUR_RIGHT] = "0x2ca02c", [COLOUR_WRONG] = "0xd62728"
    };
    const panel_bars *b = &p->bars;
    double most = b->most;
    char buf[32];
    for (int i = 0; i < b->n && b->most <= 0; i++)
        if (isfinite(b->at[i].value)) most = fmax(most, b->at[i].value);
    fprintf(s->f, "set xrange [0:%.9g]\nset yrange [%.1f:-0.5]\nset ytics scale 0 (",
            most > 0 ? most : 1, fmax(b->n, 1) - 0.5);
    for (int i = 0; i < b->n; i++) {
        if (i) fputs(", ", s->f);
        put_text(s, b->at[i].name, strlen(b->at[i].name), FONT, KEY, true);
        fprintf(s->f, " %d", i);
    }
    fputs(")\nset grid noytics\n", s->f);
    for (int i = 0; i < b->n; i++) {
        const char *text = bar_text(&b->at[i], buf);
        fputs("set label ", s->f);
        put_text(s, text, strlen(text), FONT, KEY, false);
        fprintf(s->f, " at first %.9g,%d left offset 0.6,0 front\n",
                isfinite(b->at[i].value) ? b->at[i].value : 0, i);
    }
    fputs(
        "plot '-' using 1:2:3:4:5:6:7 with boxxyerror fs solid noborder lc rgb variable notitle\n",
        s->f);
    for (int i = 0; i < b->n; i++) {
        const double v = isfinite(b->at[i].value) ? b->at[i].value : 0;
        fprintf(s->f, "%.9g %d 0 %.9g %.2f %.2f %s\n", v, i, v, i - 0.36, i + 0.36,
                colours[b->at[i].colour]);
    }
    fputs("e\n", s->f);
}

/* ---- any panel ---- */

void panel_size(const panel *p, double *width, double *height, margins *m)
{
    *width = *height = 0;
    *m = (margins){ .left = 8, .right = 8, .bottom = 6 };
    if (p->kind == PANEL_IMAGE) image_size(p, width, height);
    if (p->kind == PANEL_HEAT) heat_size(p, width, height, m);
    if (p->kind == PANEL_CURVES) curves_size(p, width, height, m);
    if (p->kind == PANEL_BARS) bars_size(p, width, height, m);
    if (p->width > 0) *width = p->width;
    if (p->height > 0) *height = p->height;
    m->top = p->title ? 24 : 8;
    if (p->up) m->left += 26;
    if (p->across) m->bottom += 20;
    m->right = fmax(m->right, fmin(text_width(p->title, FONT), 1.6 * *width) - *width + 8);
}

void panel_put(sheet *s, const panel *p, place at)
{
    double width, height;
    margins m;
    fprintf(s->f,
            "set lmargin at screen %.9g\nset rmargin at screen %.9g\n"
            "set tmargin at screen %.9g\nset bmargin at screen %.9g\n",
            at.x / s->width, (at.x + at.width) / s->width, 1 - at.y / s->height,
            1 - (at.y + at.height) / s->height);
    fputs("set autoscale\n"
          "set autoscale fix\n"
          "unset logscale\n"
          "unset colorbox\n"
          "set key off\n"
          "set offsets\n"
          "set xtics auto in nomirror\n"
          "set ytics auto in nomirror\n"
          "set tics scale 0.75 norotate autojustify tc rgb '#202020' format '%h'\n"
          "set grid xtics ytics\n"
          "set border 3\n",
          s->f);
    panel_size(p, &width, &height, &m);
    if (p->across)
        put_centred(s, p->across, at.x + at.width / 2, at.y + at.height + m.bottom - 9, FONT,
                    fmax(at.width, 160), 0);
    if (p->up)
        put_centred(s, p->up, at.x - m.left + 8, at.y + at.height / 2, FONT, fmax(at.height, 160),
                    90);
    if (p->title)
        put_label(s, p->title, strlen(p->title), at.x, at.y - 11, FONT, 1.6 * at.width + 8);
    if (p->kind == PANEL_IMAGE) put_image(s, p);
    if (p->kind == PANEL_HEAT) put_heat(s, p, at);
    if (p->kind == PANEL_CURVES) put_curves(s, p, at);
    if (p->kind == PANEL_BARS) put_bars(s, p);
    fputs("unset label\nunset object\n", s->f);
}

/* ---- room for names ---- */

static double longest(const char *const *names, int64_t n, double font, double most)
{
    double width = 0;
    for (int64_t i = 0; names && i < n; i++) width = fmax(width, text_width(names[i], font));
    return fmin(width, most);
}

/* ---- images ---- */

static void set_size(double *width, double *height, double rows, double cols, double side)
{
    *width = side * cols / fmax(rows, cols);
    *height = side * rows / fmax(rows, cols);
}

void image_size(const panel *p, double *width, double *height)
{
    const tp_image *rgb = p->image.rgb;
    set_size(width, height, (double)rgb->height, (double)rgb->width, 224);
}

/* Marks in the axes' coordinates, in which the first cell begins at x0, y0. */
static void put_marks(sheet *s, const panel *p, double x0, double y0)
{
    for (int i = 0; i < p->nmarks; i++) {
        const panel_mark *m = &p->marks[i];
        fprintf(s->f,
                "set object rectangle from first %.9g,%.9g to first %.9g,%.9g front fs empty "
                "border lc rgb '#ff7f0e' lw 2.5\n",
                x0 + m->col, y0 + m->row, x0 + m->col + m->cols, y0 + m->row + m->rows);
    }
}

void put_image(sheet *s, const panel *p)
{
    const tp_image *rgb = p->image.rgb;
    const int64_t w = rgb->width, h = rgb->height;
    fprintf(s->f,
            "set xrange [0:%lld]\nset yrange [%lld:0]\nunset tics\nunset grid\nset border 15\n",
            (long long)w, (long long)h);
    put_marks(s, p, 0, 0);
    fprintf(s->f,
            "plot '-' binary array=(%lld,%lld) origin=(0.5,0.5) format='%%uchar' with rgbimage "
            "notitle\n",
            (long long)w, (long long)h);
    fwrite(rgb->rgb, 3, (size_t)(w * h), s->f);
}

/* ---- maps ---- */

enum { BAR_GAP = 10, BAR = 12, BAR_NUMBERS = 44, NAMES = 180 };
static const double SLANT = 0.7071;

void heat_size(const panel *p, double *width, double *height, margins *m)
{
    const panel_heat *h = &p->heat;
    const double cells = fmax((double)h->rows, (double)h->cols);
    const double col_names = longest(h->col_names, h->cols, SMALL, NAMES);
    const double cell =
        h->texts ? fmin(fmax(620 / cells, 22), 44) : fmin(fmax(620 / cells, 15), 44);
    const double side = h->row_names || h->texts ? cell * cells : h->numbered ? 200 : 160;
    set_size(width, height, (double)h->rows, (double)h->cols, side);
    m->left = longest(h->row_names, h->rows, SMALL, NAMES) + 12;
    m->left = fmax(m->left, col_names * SLANT - 10); /* they extend left of the cells */
    m->bottom = col_names > 0 ? col_names * SLANT + 16 : 6;
    if (h->numbered) m->left = m->bottom = 26;
    m->right = h->no_bar ? 8 : BAR_GAP + BAR + BAR_NUMBERS + (h->unit ? 24 : 8);
}

static void put_names(sheet *s, const char *axis, const char *const *names, int64_t n,
                      const char *how)
{
    fprintf(s->f, "set %stics scale 0 tc rgb '#202020' %s", axis, how);
    put_font(s, SMALL);
    fputs(" (", s->f);
    for (int64_t i = 0; i < n; i++) {
        if (i) fputs(", ", s->f);
        put_text(s, names[i], strlen(names[i]), SMALL, NAMES, true);
        fprintf(s->f, " %lld", (long long)i);
    }
    fputs(")\n", s->f);
}

/* Finds the colour range. */
static void find_range(const panel_heat *h, double *least, double *most)
{
    *least = h->least;
    *most = h->most;
    if (*least < *most) return;
    *least = INFINITY;
    *most = -INFINITY;
    for (int64_t i = 0; i < h->rows * h->cols; i++)
        if (isfinite(h->v[i])) {
            *least = fmin(*least, h->v[i]);
            *most = fmax(*most, h->v[i]);
        }
    if (*least > *most) *least = *most = 0;
    if (h->diverging) {
        *most = fmax(fabs(*least), fabs(*most));
        *least = -*most;
    }
    if (*least == *most) *most += fmax(fabs(*most), 1);
}

/* A step of 1, 2 or 5 times a power of ten that cuts the range into at most n parts. */
static double step_of(double range, double n)
{
    const double least = range / n, power = pow(10, floor(log10(least)));
    const double share = least / power;
    return power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
}

static void put_bar(sheet *s, const panel_heat *h, place at, double least, double most)
{
    const double x = at.x + at.width + BAR_GAP;
    fprintf(s->f,
            "set colorbox user origin screen %.9g,%.9g size screen %.9g,%.9g front noborder\n"
            "set cbtics %.9g scale 0.5 tc rgb '#202020' format '%%.4g'",
            x / s->width, 1 - (at.y + at.height) / s->height, BAR / s->width, at.height / s->height,
            step_of(most - least, fmax(at.height / 36, 2)));
    put_font(s, SMALL);
    fputc('\n', s->f);
    if (!h->unit) return;
    put_centred(s, h->unit, x + BAR + BAR_NUMBERS, at.y + at.height / 2, SMALL,
                fmax(at.height, 120), 90);
}

/* Text on dark cells is white. */
static void put_cells(sheet *s, const panel_heat *h, double least, double most, place at)
{
    const double cell = at.width / (double)h->cols;
    for (int64_t i = 0; i < h->rows * h->cols; i++) {
        if (!h->texts[i]) continue;
        double share = (h->v[i] - least) / (most - least);
        if (h->diverging) share = fabs(2 * share - 1);
        fputs("set label ", s->f);
        put_text(s, h->texts[i], strlen(h->texts[i]), SMALL, cell, false);
        fprintf(s->f, " at first %.9g,%.9g center front tc rgb '%s'",
                h->first_col + (double)(i % h->cols), h->first_row + (double)(i / h->cols),
                share > 0.6 ? "#ffffff" : "#000000");
        put_font(s, SMALL);
        fputc('\n', s->f);
    }
}

void put_heat(sheet *s, const panel *p, place at)
{
    static const char white_to_blue[] =
        "set palette defined (0 '#ffffff', 1 '#9ecae1', 2 '#3182bd', 3 '#08306b')\n";
    static const char red_to_blue[] = "set palette defined (0 '#8b0f15', 1 '#e0564a', 2 '#ffffff', "
                                      "3 '#4a94c8', 4 '#08306b')\n";
    const panel_heat *h = &p->heat;
    const double x = h->first_col - 0.5, y = h->first_row - 0.5;
    double least, most;
    find_range(h, &least, &most);
    fprintf(s->f, "set xrange [%.9g:%.9g]\nset yrange [%.9g:%.9g]\nset cbrange [%.9g:%.9g]\n", x,
            x + (double)h->cols, y + (double)h->rows, y, least, most);
    fputs("unset tics\nunset grid\nset border 15\n", s->f);
    fputs(h->diverging ? red_to_blue : white_to_blue, s->f);
    if (h->numbered) {
        fputs("set tics out nomirror scale 0.5 tc rgb '#202020'", s->f);
        put_font(s, SMALL);
        fputs("\nset xtics out nomirror\nset ytics out nomirror\n", s->f);
    }
    if (h->row_names) put_names(s, "y", h->row_names, h->rows, "");
    if (h->col_names) put_names(s, "x", h->col_names, h->cols, "rotate by 45 right");
    if (!h->no_bar) put_bar(s, h, at, least, most);
    if (h->texts) put_cells(s, h, least, most, at);
    put_marks(s, p, x, y);
    fprintf(s->f,
            "plot '-' binary array=(%lld,%lld) origin=(%.9g,%.9g) format='%%double' with image%s "
            "notitle\n",
            (long long)h->cols, (long long)h->rows, h->first_col, h->first_row,
            s->svg ? " pixels" : ""); /* viewers blur enlarged images */
    fwrite(h->v, sizeof *h->v, (size_t)(h->rows * h->cols), s->f);
}
