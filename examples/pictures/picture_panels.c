/* picture_panels.c - the kinds of panels as gnuplot commands. Each sets all that it depends on, because
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
                c->plain ? "lines" : "linespoints", i + 1);
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
    fputs(
        "set autoscale\nset autoscale fix\nunset logscale\nunset colorbox\nset key off\nset offsets\n"
        "set xtics auto in nomirror\nset ytics auto in nomirror\n"
        "set tics scale 0.75 norotate autojustify tc rgb '#202020' format '%h'\n"
        "set grid xtics ytics\nset border 3\n",
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
