/* picture.c - lays out a picture's panels and texts. A panel has its kind's size plus room for its
 * texts; a column is as wide as its widest panel, a row as high as its highest. All of
 * this is computed here, because gnuplot's layout does not know the panels beside one. */
#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <tapegrad/file.h>

#include "picture.h"
#include "picture_inner.h"

enum { GRID = 256, EDGE = 12, LEAST_WIDTH = 520 };

/* A column or row of the grid: room before, the plot, room after. */
typedef struct lane {
    double before, plot, after;
} lane;

void put_font(sheet *s, double font)
{
    fprintf(s->f, " font 'sans-serif,%.4g'", s->svg ? font : font * 0.75); /* PNG: points */
}

void put_label(sheet *s, const char *text, size_t bytes, double x, double y, double font,
               double width)
{
    fputs("set label ", s->f);
    put_text(s, text, bytes, font, width, false);
    fprintf(s->f, " at screen %.9g,%.9g left front", x / s->width, 1 - y / s->height);
    put_font(s, font);
    fputc('\n', s->f);
}

static void widen(lane *l, double before, double plot, double after)
{
    l->before = fmax(l->before, before);
    l->plot = fmax(l->plot, plot);
    l->after = fmax(l->after, after);
}

static double length(const lane *l, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += l[i].before + l[i].plot + l[i].after;
    return sum;
}

/* Writes wrapped text from height y down, unless s has no file. Returns the height below it. */
static double put_lines(sheet *s, const char *text, double y, double font)
{
    const double width = s->width - 2 * EDGE;
    size_t n;
    while (text && (n = next_line(&text, font, width)) > 0) {
        if (s->f) put_label(s, text, n, EDGE, y + 0.7 * font, font, width);
        text += n;
        y += 1.45 * font;
    }
    return y;
}

static double put_head(sheet *s, const picture *p)
{
    const double y = put_lines(s, p->title, EDGE, LARGE);
    return put_lines(s, p->note, y, FONT) + 6;
}

static void put_sheet(sheet *s, const char *format)
{
    fprintf(s->f, "reset\nset terminal %s size %.0f,%.0f noenhanced background '#ffffff'", format,
            s->width, s->height);
    put_font(s, FONT);
    fputs("\nset output '" GNUPLOT_OUTPUT "'\n" PICTURE_STYLE "set multiplot\n", s->f);
}

static void put_panels(sheet *s, const picture *p, const lane *row, const lane *col, double top)
{
    double y = top;
    for (int r = 0; r < p->down; r++) {
        double x = EDGE;
        y += row[r].before;
        for (int c = 0; c < p->across; c++) {
            const panel *a = &p->at[r * p->across + c];
            place at = { x + col[c].before, y, 0, 0 };
            margins m;
            panel_size(a, &at.width, &at.height, &m);
            if (a->kind != PANEL_NONE) panel_put(s, a, at);
            x += col[c].before + col[c].plot + col[c].after;
        }
        y += row[r].plot + row[r].after;
    }
}

static void put_picture(sheet *s, const picture *p, const char *format)
{
    lane row[GRID] = { 0 }, col[GRID] = { 0 };
    for (int i = 0; i < p->down * p->across; i++) {
        double width, height;
        margins m;
        panel_size(&p->at[i], &width, &height, &m);
        if (p->at[i].kind == PANEL_NONE) continue;
        widen(&row[i / p->across], m.top, height, m.bottom);
        widen(&col[i % p->across], m.left, width, m.right);
    }
    FILE *const f = s->f;
    s->f = NULL; /* measure only */
    s->width = ceil(fmax(length(col, p->across) + 2 * EDGE, LEAST_WIDTH));
    const double top = put_head(s, p);
    s->height = ceil(top + length(row, p->down) + EDGE);
    s->f = f;
    put_sheet(s, format);
    put_head(s, p);
    put_panels(s, p, row, col, top);
    fputs("unset multiplot\nset output\n", s->f);
}

static bool ends_in(const char *path, const char *ending)
{
    const size_t n = strlen(path), k = strlen(ending);
    return n > k && strcasecmp(path + n - k, ending) == 0;
}

/* gnuplot does not notice a full disk. */
static bool whole(const char *bytes, size_t n, bool svg)
{
    if (!svg) return n > 12 && memcmp(bytes + n - 8, "IEND", 4) == 0;
    while (n > 0 && bytes[n - 1] == '\n') n--;
    return n > 6 && memcmp(bytes + n - 6, "</svg>", 6) == 0;
}

static bool draw(gnuplot *g, const picture *p, const char *path, char *why, size_t size)
{
    char reason[600], *script = NULL, *bytes = NULL;
    size_t length = 0, n = 0;
    sheet s = { .f = open_memstream(&script, &length), .svg = ends_in(path, ".svg") };
    bool done = s.f != NULL;
    snprintf(reason, sizeof reason, "out of memory");
    if (done) {
        put_picture(&s, p, s.svg ? "svg" : "pngcairo");
        done = !ferror(s.f);
        done = fclose(s.f) == 0 && done;
    }
    done = done && gnuplot_run(g, script, length, &bytes, &n, reason, sizeof reason);
    if (done && !whole(bytes, n, s.svg)) {
        snprintf(reason, sizeof reason, "the picture is cut off: make room in /tmp");
        done = false;
    }
    if (!done) snprintf(why, size, "%.1000s was not drawn: %s", path, reason);
    done = done && tp_file_replace(path, bytes, n, why, size);
    free(script);
    free(bytes);
    return done;
}

bool picture_draw(gnuplot *g, const picture *p, const char *path, char *why, size_t size)
{
    gnuplot own = { 0 };
    bool any = false;
    for (int i = 0; i < p->down * p->across; i++) any |= p->at[i].kind != PANEL_NONE;
    if (!any || p->down > GRID || p->across > GRID) {
        snprintf(why, size,
                 "%.1000s was not drawn: a picture has panels in 1 to %d rows and columns", path,
                 GRID);
        return false;
    }
    if (!ends_in(path, ".png") && !ends_in(path, ".svg")) {
        snprintf(why, size, "%.1000s was not drawn: end the name in .png or .svg", path);
        return false;
    }
    void *locale = tp_c_locale_begin(); /* gnuplot needs decimal points */
    const bool done = draw(g ? g : &own, p, path, why, size);
    tp_c_locale_end(locale);
    gnuplot_end(&own);
    return done;
}

/* ---- texts ---- */

static const double EM = 0.57; /* mean width of a letter, in font sizes */
static const char unknown[] = "\xef\xbf\xbd", cut[] = "\xe2\x80\xa6";

/* In letters: East Asian characters are two wide. */
static int width_of(uint32_t c)
{
    return 1 + ((c >= 0x1100 && c <= 0x115f) || (c >= 0x2e80 && c <= 0xd7a3) ||
                (c >= 0xf900 && c <= 0xfaff) || (c >= 0xff00 && c <= 0xff60) || c >= 0x1f300);
}

/* Reads the character at s and returns its bytes. *shown replaces it, with *size bytes; control
 * characters become blanks. */
static size_t shown_as(const char *s, const char **shown, size_t *size, int *width)
{
    uint32_t c = 0;
    size_t n = tp_utf8_at(s, &c);
    if (c == 0xfffe || c == 0xffff) n = 0; /* not allowed in XML */
    *shown = n ? s : unknown;
    *size = n ? n : strlen(unknown);
    if (n && (c < 0x20 || (c >= 0x7f && c < 0xa0))) {
        *shown = " ";
        *size = 1;
    }
    *width = n ? width_of(c) : 1;
    return n ? n : 1;
}

static double letters_in(const char *s, size_t bytes)
{
    const char *const end = s + bytes, *shown;
    size_t size;
    int width;
    double sum = 0;
    while (s < end && *s) {
        s += shown_as(s, &shown, &size, &width);
        sum += width;
    }
    return sum;
}

double text_width(const char *text, double font)
{
    return text ? letters_in(text, strlen(text)) * EM * font : 0;
}

/* Writes a character of a double-quoted gnuplot string. Punctuation becomes octal, so that none can
 * be an escape, a command substitution or the end of the string; so do digits, which would extend
 * such a number. */
static void put_character(FILE *f, const char *s, size_t bytes)
{
    if (bytes > 1 || isalpha((unsigned char)*s) || *s == ' ')
        fwrite(s, 1, bytes, f);
    else
        fprintf(f, "\\%03o", (unsigned)(unsigned char)*s);
}

void put_text(sheet *s, const char *text, size_t bytes, double font, double width, bool tic)
{
    const char *const end = text + bytes;
    const double most = width / (EM * font);
    const bool whole = letters_in(text, bytes) <= most;
    double used = whole ? 0 : 1;
    fputc('"', s->f);
    while (text < end && *text) {
        const char *shown;
        size_t size;
        int letters;
        text += shown_as(text, &shown, &size, &letters);
        used += letters;
        if (!whole && used > most) break;
        if (*shown == '%' && tic) put_character(s->f, shown, size);
        put_character(s->f, shown, size);
    }
    if (!whole) fputs(cut, s->f);
    fputc('"', s->f);
}

size_t next_line(const char **text, double font, double width)
{
    *text += strspn(*text, " \n");
    size_t line = strcspn(*text, " \n");
    while ((*text)[line] && (*text)[line] != '\n') {
        const size_t more = line + 1 + strcspn(*text + line + 1, " \n");
        if (letters_in(*text, more) * EM * font > width) break;
        line = more;
    }
    return line;
}
