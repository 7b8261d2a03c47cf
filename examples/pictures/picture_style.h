/* picture_style.h - the style of all pictures, in gnuplot's words. scripts/plot.sh reads these strings
 * too, so each stands on a line of its own. Series 10 to 18 repeat the nine colours with dashed lines and
 * other marks. */
#ifndef PICTURE_STYLE_H
#define PICTURE_STYLE_H

/* clang-format off */
#define PICTURE_STYLE \
    "set encoding utf8\n" \
    "set border 3 lw 1 lc rgb '#606060'\n" \
    "set tics nomirror tc rgb '#202020'\n" \
    "set format xy '%.10g'\n" \
    "set grid lt 1 lw 0.5 lc rgb '#e0e0e0'\n" \
    "set linetype 1 lc rgb '#1f77b4' lw 2 pt 7 ps 0.7\n" \
    "set linetype 2 lc rgb '#d62728' lw 2 pt 5 ps 0.7\n" \
    "set linetype 3 lc rgb '#2ca02c' lw 2 pt 9 ps 0.8\n" \
    "set linetype 4 lc rgb '#ff7f0e' lw 2 pt 11 ps 0.8\n" \
    "set linetype 5 lc rgb '#9467bd' lw 2 pt 13 ps 0.8\n" \
    "set linetype 6 lc rgb '#8c564b' lw 2 pt 6 ps 0.8\n" \
    "set linetype 7 lc rgb '#17becf' lw 2 pt 4 ps 0.8\n" \
    "set linetype 8 lc rgb '#000000' lw 2 pt 8 ps 0.8\n" \
    "set linetype 9 lc rgb '#bcbd22' lw 2 pt 10 ps 0.8\n" \
    "set linetype 10 lc rgb '#1f77b4' lw 2 dt (6,3) pt 6 ps 0.8\n" \
    "set linetype 11 lc rgb '#d62728' lw 2 dt (6,3) pt 4 ps 0.8\n" \
    "set linetype 12 lc rgb '#2ca02c' lw 2 dt (6,3) pt 8 ps 0.8\n" \
    "set linetype 13 lc rgb '#ff7f0e' lw 2 dt (6,3) pt 10 ps 0.8\n" \
    "set linetype 14 lc rgb '#9467bd' lw 2 dt (6,3) pt 12 ps 0.8\n" \
    "set linetype 15 lc rgb '#8c564b' lw 2 dt (6,3) pt 7 ps 0.8\n" \
    "set linetype 16 lc rgb '#17becf' lw 2 dt (6,3) pt 5 ps 0.8\n" \
    "set linetype 17 lc rgb '#000000' lw 2 dt (6,3) pt 9 ps 0.8\n" \
    "set linetype 18 lc rgb '#bcbd22' lw 2 dt (6,3) pt 11 ps 0.8\n" \
    "set linetype cycle 18\n"
/* clang-format on */

#endif
