/* heat_map.h - a grid of heat maps in one PNG. */
#ifndef HEAT_MAP_H
#define HEAT_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* rows x cols values, coloured by v - zero: blue if positive, red if negative. limit: the magnitude
 * with the darkest colour; 0: the largest of the map. marked: a cell with an orange frame; -1: none. */
typedef struct heat_map {
    int64_t rows, cols;
    const double *v; /* NULL: the tile is left empty */
    double limit, zero;
    int64_t marked;
} heat_map;

/* Each map is scaled to a square of HEAT_TILE pixels with a margin of HEAT_GAP. */
enum { HEAT_TILE = 96, HEAT_GAP = 6 };

/* Draws down x across maps, row by row. False with the reason in why. */
bool heat_draw(const heat_map *at, int down, int across, const char *path, char *why, size_t size);

#endif
