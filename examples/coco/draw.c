/* draw.c - see the header. */
#include "draw.h"

#include <ctype.h>
#include <string.h>

/* ---- colours ---- */

draw_colour draw_colour_of(int category)
{
    static const draw_colour colours[] = {
        { { 230, 25, 75 } },  { { 60, 180, 75 } },   { { 0, 130, 200 } },  { { 245, 130, 48 } },
        { { 145, 30, 180 } }, { { 70, 240, 240 } },  { { 240, 50, 230 } }, { { 210, 245, 60 } },
        { { 0, 128, 128 } },  { { 170, 110, 40 } },  { { 128, 0, 0 } },    { { 0, 0, 160 } },
        { { 128, 128, 0 } },  { { 250, 190, 190 } },
    };
    return colours[category % (int)(sizeof colours / sizeof *colours)];
}

/* ---- boxes and masks ---- */

static void set(tp_image *p, int64_t x, int64_t y, draw_colour c)
{
    if (x >= 0 && y >= 0 && x < p->width && y < p->height)
        memcpy(p->rgb + 3 * (y * p->width + x), c.rgb, 3);
}

static void fill(tp_image *p, int64_t x1, int64_t y1, int64_t x2, int64_t y2, draw_colour c)
{
    for (int64_t y = y1; y < y2; y++)
        for (int64_t x = x1; x < x2; x++) set(p, x, y, c);
}

static int64_t clamp(double v, int64_t most)
{
    return v < 0 ? 0 : v > (double)most ? most : (int64_t)(v + 0.5);
}

void draw_box(tp_image *p, const double box[4], int thick, draw_colour c)
{
    const int64_t x1 = clamp(box[0], p->width), x2 = clamp(box[0] + box[2], p->width),
                  y1 = clamp(box[1], p->height), y2 = clamp(box[1] + box[3], p->height);
    fill(p, x1, y1, x2, y1 + thick, c);
    fill(p, x1, y2 - thick, x2, y2, c);
    fill(p, x1, y1, x1 + thick, y2, c);
    fill(p, x2 - thick, y1, x2, y2, c);
}

void draw_mask(tp_image *p, const tp_rle *mask, double opacity, draw_colour c)
{
    if (mask->height != p->height || mask->width != p->width) return;
    int64_t at = 0;
    for (int64_t k = 0; k < mask->runs; at += mask->run[k++])
        for (int64_t i = at; k % 2 == 1 && i < at + mask->run[k]; i++) {
            uint8_t *to = p->rgb + 3 * (i % p->height * p->width + i / p->height);
            for (int a = 0; a < 3; a++)
                to[a] = (uint8_t)((1 - opacity) * to[a] + opacity * c.rgb[a] + 0.5);
        }
}

/* ---- texts ---- */

enum { WIDE = 5, HIGH = 7 };

/* Seven rows of five dots, the highest bit on the left. */
typedef struct glyph {
    char character;
    uint8_t row[HIGH];
} glyph;

static const glyph glyphs[] = {
    { 'A', { 14, 17, 17, 31, 17, 17, 17 } }, { 'B', { 30, 17, 17, 30, 17, 17, 30 } },
    { 'C', { 14, 17, 16, 16, 16, 17, 14 } }, { 'D', { 30, 17, 17, 17, 17, 17, 30 } },
    { 'E', { 31, 16, 16, 30, 16, 16, 31 } }, { 'F', { 31, 16, 16, 30, 16, 16, 16 } },
    { 'G', { 14, 17, 16, 23, 17, 17, 14 } }, { 'H', { 17, 17, 17, 31, 17, 17, 17 } },
    { 'I', { 14, 4, 4, 4, 4, 4, 14 } },      { 'J', { 1, 1, 1, 1, 1, 17, 14 } },
    { 'K', { 17, 18, 20, 24, 20, 18, 17 } }, { 'L', { 16, 16, 16, 16, 16, 16, 31 } },
    { 'M', { 17, 27, 21, 21, 17, 17, 17 } }, { 'N', { 17, 25, 21, 19, 17, 17, 17 } },
    { 'O', { 14, 17, 17, 17, 17, 17, 14 } }, { 'P', { 30, 17, 17, 30, 16, 16, 16 } },
    { 'Q', { 14, 17, 17, 17, 21, 18, 13 } }, { 'R', { 30, 17, 17, 30, 20, 18, 17 } },
    { 'S', { 15, 16, 16, 14, 1, 1, 30 } },   { 'T', { 31, 4, 4, 4, 4, 4, 4 } },
    { 'U', { 17, 17, 17, 17, 17, 17, 14 } }, { 'V', { 17, 17, 17, 17, 17, 10, 4 } },
    { 'W', { 17, 17, 17, 21, 21, 27, 17 } }, { 'X', { 17, 17, 10, 4, 10, 17, 17 } },
    { 'Y', { 17, 17, 10, 4, 4, 4, 4 } },     { 'Z', { 31, 1, 2, 4, 8, 16, 31 } },
    { '0', { 14, 17, 19, 21, 25, 17, 14 } }, { '1', { 4, 12, 4, 4, 4, 4, 14 } },
    { '2', { 14, 17, 1, 6, 8, 16, 31 } },    { '3', { 30, 1, 1, 14, 1, 1, 30 } },
    { '4', { 2, 6, 10, 18, 31, 2, 2 } },     { '5', { 31, 16, 30, 1, 1, 17, 14 } },
    { '6', { 6, 8, 16, 30, 17, 17, 14 } },   { '7', { 31, 1, 2, 4, 8, 8, 8 } },
    { '8', { 14, 17, 17, 14, 17, 17, 14 } }, { '9', { 14, 17, 17, 15, 1, 2, 12 } },
    { ' ', { 0, 0, 0, 0, 0, 0, 0 } },        { '.', { 0, 0, 0, 0, 0, 12, 12 } },
    { '-', { 0, 0, 0, 14, 0, 0, 0 } },       { '_', { 0, 0, 0, 0, 0, 0, 31 } },
    { '%', { 24, 25, 2, 4, 8, 19, 3 } },     { '?', { 14, 17, 1, 6, 4, 0, 4 } },
};

static const glyph *glyph_of(unsigned char c)
{
    const int n = (int)(sizeof glyphs / sizeof *glyphs);
    for (int i = 0; i < n; i++)
        if (glyphs[i].character == (char)toupper(c)) return &glyphs[i];
    return &glyphs[n - 1];
}

int draw_text_height(int scale)
{
    return (HIGH + 2) * scale;
}

void draw_text(tp_image *p, const char *text, int64_t x, int64_t y, int scale, draw_colour c)
{
    const int64_t n = (int64_t)strlen(text), width = (n * (WIDE + 1) + 1) * scale;
    const int bright = 3 * c.rgb[0] + 6 * c.rgb[1] + c.rgb[2];
    const draw_colour ink =
        bright > 1300 ? (draw_colour){ { 0, 0, 0 } } : (draw_colour){ { 255, 255, 255 } };
    if (x + width > p->width) x = p->width - width;
    if (y + draw_text_height(scale) > p->height) y = p->height - draw_text_height(scale);
    if (x < 0) x = 0;
    if (y < 0) y = 0;
    fill(p, x, y, x + width, y + draw_text_height(scale), c);
    for (int64_t i = 0; i < n; i++) {
        const glyph *g = glyph_of((unsigned char)text[i]);
        for (int k = 0; k < WIDE * HIGH; k++) {
            if (!(g->row[k / WIDE] >> (WIDE - 1 - k % WIDE) & 1)) continue;
            const int64_t left = x + (i * (WIDE + 1) + 1 + k % WIDE) * scale,
                          top = y + (1 + k / WIDE) * scale;
            fill(p, left, top, left + scale, top + scale, ink);
        }
    }
}
