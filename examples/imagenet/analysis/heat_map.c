/* heat_map.c - see the header. */
#include "heat_map.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/image.h>

static const uint8_t paper[3] = { 224, 224, 224 }, frame[3] = { 255, 127, 14 };

static double largest(const heat_map *m)
{
    double most = 0;
    for (int64_t i = 0; i < m->rows * m->cols; i++) most = fmax(most, fabs(m->v[i] - m->zero));
    return most;
}

/* White at 0, shading linearly to blue for positive and red for negative values. */
static void colour_of(double v, double limit, uint8_t rgb[3])
{
    static const double blue[3] = { 8, 48, 107 }, red[3] = { 165, 15, 21 };
    const double *dark = v < 0 ? red : blue;
    double share = limit > 0 ? fabs(v) / limit : 0;
    if (!(share <= 1)) share = 1;
    for (int i = 0; i < 3; i++) rgb[i] = (uint8_t)lrint(255 + (dark[i] - 255) * share);
}

/* Draws the map into the square whose top left corner is row y0, column x0. */
static void draw_tile(tp_image *p, const heat_map *m, int64_t y0, int64_t x0)
{
    const double limit = m->limit > 0 ? m->limit : largest(m);
    for (int64_t y = 0; y < HEAT_TILE; y++)
        for (int64_t x = 0; x < HEAT_TILE; x++) {
            const int64_t row = y * m->rows / HEAT_TILE, col = x * m->cols / HEAT_TILE;
            const int64_t cell = row * m->cols + col;
            uint8_t *pixel = p->rgb + 3 * ((y0 + y) * p->width + x0 + x);
            const bool edge =
                (y + 1) * m->rows / HEAT_TILE != row || y * m->rows % HEAT_TILE < m->rows ||
                (x + 1) * m->cols / HEAT_TILE != col || x * m->cols % HEAT_TILE < m->cols;
            if (cell == m->marked && edge)
                memcpy(pixel, frame, 3);
            else
                colour_of(m->v[cell] - m->zero, limit, pixel);
        }
}

bool heat_draw(const heat_map *at, int down, int across, const char *path, char *why, size_t size)
{
    const int64_t step = HEAT_TILE + HEAT_GAP;
    tp_image p = { 0 };
    if (tp_image_new(&p, across * step + HEAT_GAP, down * step + HEAT_GAP)) {
        for (int64_t i = 0; i < p.width * p.height; i++) memcpy(p.rgb + 3 * i, paper, 3);
        for (int i = 0; i < down * across; i++)
            if (at[i].v && at[i].rows > 0 && at[i].cols > 0)
                draw_tile(&p, &at[i], HEAT_GAP + i / across * step, HEAT_GAP + i % across * step);
        tp_image_write(&p, path);
    }
    const bool done = !p.why[0];
    if (!done) snprintf(why, size, "%s", p.why);
    tp_image_free(&p);
    return done;
}
