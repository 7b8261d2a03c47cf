/* draw.c - draws boxes, masks and texts into images. */
#include "draw.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Black on bright colours, white on dark ones. */
static draw_colour ink_on(draw_colour c)
{
    const bool bright = 3 * c.rgb[0] + 6 * c.rgb[1] + c.rgb[2] > 1300;
    return bright ? (draw_colour){ { 0, 0, 0 } } : (draw_colour){ { 255, 255, 255 } };
}

/* Draws a box's frame inside the image. A thin inner line keeps it visible on its own colour. */
static void draw_box(tp_image *p, const double box[4], int thick, draw_colour c)
{
    const int64_t x1 = clamp(box[0], p->width), x2 = clamp(box[0] + box[2], p->width),
                  y1 = clamp(box[1], p->height), y2 = clamp(box[1] + box[3], p->height);
    const draw_colour colours[] = { ink_on(c), c };
    for (int k = 0; k < 2; k++) {
        const int wide = thick + 1 - k;
        fill(p, x1, y1, x2, y1 + wide, colours[k]);
        fill(p, x1, y2 - wide, x2, y2, colours[k]);
        fill(p, x1, y1, x1 + wide, y2, colours[k]);
        fill(p, x2 - wide, y1, x2, y2, colours[k]);
    }
}

/* Are the four pixels at this distance in the mask? Pixels outside the image count as inside. */
static bool inner(const tp_image *p, const uint8_t *bits, int64_t x, int64_t y, int64_t away)
{
    const int64_t w = p->width;
    const uint8_t *at = bits + y * w + x;
    return (x < away || at[-away]) && (x + away >= w || at[away]) && (y < away || at[-away * w]) &&
           (y + away >= p->height || at[away * w]);
}

/* Tints a mask lightly, so that the image shows through, and draws its contour. */
static bool draw_mask(tp_image *p, const tp_rle *mask, int thick, draw_colour c)
{
    static const double tint = 0.25;
    if (mask->runs == 0 || mask->height != p->height || mask->width != p->width) return true;
    uint8_t *bits = malloc((size_t)(p->height * p->width) + 1);
    if (!bits) return false;
    tp_rle_pixels(mask, bits);
    for (int64_t y = 0; y < p->height; y++)
        for (int64_t x = 0; x < p->width; x++) {
            uint8_t *to = p->rgb + 3 * (y * p->width + x);
            if (!bits[y * p->width + x]) continue;
            bool inside = true;
            for (int k = 1; k <= thick; k++) inside = inside && inner(p, bits, x, y, k);
            for (int a = 0; a < 3; a++)
                to[a] = inside ? (uint8_t)lround((1 - tint) * to[a] + tint * c.rgb[a]) : c.rgb[a];
        }
    free(bits);
    return true;
}

/* ---- texts ---- */

enum { WIDE = 5, HIGH = 7 };

/* Seven rows of five dots, highest bit on the left. */
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

static int64_t text_height(int scale)
{
    return (HIGH + 2) * scale;
}

static int64_t text_width(const char *text, int scale)
{
    return ((int64_t)strlen(text) * (WIDE + 1) + 1) * scale;
}

void draw_text(tp_image *p, const char *text, int64_t x, int64_t y, int scale, draw_colour c)
{
    const draw_colour ink = ink_on(c);
    fill(p, x, y, x + text_width(text, scale), y + text_height(scale), c);
    for (int64_t i = 0; text[i]; i++) {
        const glyph *g = glyph_of((unsigned char)text[i]);
        for (int k = 0; k < WIDE * HIGH; k++) {
            if (!(g->row[k / WIDE] >> (WIDE - 1 - k % WIDE) & 1)) continue;
            const int64_t left = x + (i * (WIDE + 1) + 1 + k % WIDE) * scale,
                          top = y + (1 + k / WIDE) * scale;
            fill(p, left, top, left + scale, top + scale, ink);
        }
    }
}

/* ---- objects ---- */

/* The bar behind a name. */
typedef struct bar {
    int64_t x, y, width, height;
} bar;

static bool meets(bar a, const bar *others, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const bar *b = &others[i];
        if (a.x < b->x + b->width && b->x < a.x + a.width && a.y < b->y + b->height &&
            b->y < a.y + a.height)
            return true;
    }
    return false;
}

static int64_t within(int64_t x, int64_t size, int64_t all)
{
    return x + size > all && all > size ? all - size : x < 0 || size > all ? 0 : x;
}

/* Tries above, below and inside the box, left and right, then further down. Returns the first free
 * place, or else the first. */
static bar place(const tp_image *p, const double box[4], int64_t width, int64_t height,
                 const bar *taken, int64_t n)
{
    const int64_t left = clamp(box[0], p->width), right = clamp(box[0] + box[2], p->width) - width,
                  top = clamp(box[1], p->height), bottom = clamp(box[1] + box[3], p->height);
    const int64_t xs[] = { left, right }, ys[] = { top - height, bottom, top, bottom - height };
    bar first = { 0 };
    for (int64_t k = 0; k < 8 + p->height / height; k++) {
        const int64_t x = xs[k % 2], y = k < 8 ? ys[k / 2] : top + (k - 7) * height;
        const bar b = { within(x, width, p->width), within(y, height, p->height), width, height };
        if (!meets(b, taken, n)) return b;
        if (k == 0) first = b;
    }
    return first;
}

static void draw_names(tp_image *p, const draw_object *o, int64_t n, int scale, bar *taken)
{
    for (int64_t i = 0; i < n; i++) {
        char text[100];
        if (o[i].score < 0)
            snprintf(text, sizeof text, "%.60s", o[i].name);
        else
            snprintf(text, sizeof text, "%.60s %.0f", o[i].name, 100 * o[i].score);
        taken[i] = place(p, o[i].box, text_width(text, scale), text_height(scale), taken, i);
        draw_text(p, text, taken[i].x, taken[i].y, scale, draw_colour_of(o[i].category));
    }
}

bool draw_objects(tp_image *p, const draw_object *o, int64_t n)
{
    const int scale = p->width >= 320 || p->height >= 320 ? 2 : 1;
    bar *taken = malloc((size_t)(n + 1) * sizeof *taken);
    bool done = taken != NULL;
    for (int64_t i = n - 1; i >= 0 && done; i--)
        done = draw_mask(p, &o[i].mask, scale, draw_colour_of(o[i].category));
    for (int64_t i = n - 1; i >= 0 && done; i--)
        draw_box(p, o[i].box, scale, draw_colour_of(o[i].category));
    if (done) draw_names(p, o, n, scale, taken);
    free(taken);
    return done;
}
