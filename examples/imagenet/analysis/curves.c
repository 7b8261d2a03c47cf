/* curves.c - see the header. gnuplot reads commands and numbers from a pipe. */
#include "curves.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Writes a gnuplot string: quoted, with quotes inside doubled. */
static void quote(FILE *f, const char *s)
{
    fputc('\'', f);
    for (; *s; s++) {
        if (*s == '\'') fputc('\'', f);
        fputc(*s, f);
    }
    fputc('\'', f);
}

static void set(FILE *f, const char *what, const char *value)
{
    fprintf(f, "set %s ", what);
    quote(f, value);
    fputc('\n', f);
}

/* Logarithmic axes have a tick at each x of the first curve. */
static void write_axes(FILE *f, const curves *p)
{
    fprintf(f, "set offsets graph 0.02, graph 0.02, graph 0.04, graph 0.04\n");
    if (!p->logarithmic) return;
    fprintf(f, "set logscale xy\nset autoscale fix\nset xtics (");
    for (int i = 0; p->n > 0 && i < p->at[0].n; i++)
        fprintf(f, "%s%.9g", i ? "," : "", p->at[0].x[i]);
    fprintf(f, ")\n");
}

static void write_plot(FILE *f, const curves *p, const char *path)
{
    static const char *const colours[] = { "#1f77b4", "#d62728", "#2ca02c",
                                           "#ff7f0e", "#9467bd", "#8c564b" };
    fprintf(f, "set terminal pngcairo size %d,%d noenhanced font 'sans,11'\n", CURVES_WIDTH,
            CURVES_HEIGHT);
    set(f, "output", path);
    set(f, "xlabel", p->across);
    set(f, "ylabel", p->up);
    fprintf(f, "set grid lt 1 lw 0.5 lc rgb '#e0e0e0'\nset border 3\nset tics nomirror\n"
               "set key outside below horizontal samplen 3 width 2\n");
    write_axes(f, p);
    for (int i = 0; i < p->n; i++) {
        fprintf(f, "%s '-' with linespoints lw 2 pt %d ps 0.8 lc rgb '%s' dt %d title ",
                i ? "," : "plot", i < 6 ? 7 : 5, colours[i % 6], i < 6 ? 1 : 2);
        quote(f, p->at[i].name);
    }
    fputc('\n', f);
    for (int i = 0; i < p->n; i++) {
        const curve *c = &p->at[i];
        for (int k = 0; k < c->n; k++)
            if (isfinite(c->y[k])) fprintf(f, "%.9g %.9g\n", c->x[k], c->y[k]);
        fprintf(f, "e\n");
    }
}

bool curves_draw(const curves *p, const char *path, char *why, size_t size)
{
    char fresh[4300];
    snprintf(fresh, sizeof fresh, "%.4200s.new", path);
    void (*const former)(int) = signal(SIGPIPE, SIG_IGN); /* gnuplot may exit early */
    FILE *f = popen("gnuplot", "w");
    bool done = f != NULL;
    if (f) {
        write_plot(f, p, fresh);
        done = pclose(f) == 0;
    }
    signal(SIGPIPE, former);
    if (done && rename(fresh, path) == 0) return true;
    remove(fresh);
    snprintf(why, size, "%.500s was not drawn: is gnuplot installed? (apt-get install gnuplot-nox)",
             path);
    return false;
}
