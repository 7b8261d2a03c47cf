/* heat_map.h - tables of numbers as colours, side by side in one PNG. */
#ifndef HEAT_MAP_H
#define HEAT_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* rows x cols values. The larger, the darker blue; below 0 red. limit has the darkest colour; 0:
 * the largest magnitude of the map. marked: a cell in an orange frame; -1: none. */
typedef struct heat_map {
    int64_t rows, cols;
    const double *v; /* NULL: the place stays empty */
    double limit, zero;
    int64_t marked;
} heat_map;

/* Every map is scaled to a square of HEAT_TILE pixels, with HEAT_GAP around it. */
enum { HEAT_TILE = 96, HEAT_GAP = 6 };

/* Draws down x across maps, row by row. False with the reason in why. */
bool heat_draw(const heat_map *at, int down, int across, const char *path, char *why, size_t size);

#endif
