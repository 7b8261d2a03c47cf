/* bombs.h - worst-case files, each read in a separate process whose peak memory and processor time
 * are bounded. */
#ifndef TP_SUPPORT_BOMBS_H
#define TP_SUPPORT_BOMBS_H

#include <stddef.h>
#include <stdio.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { BOMBS_MEASURED = 0 }; /* freed memory stays mapped for a while */
#else
enum { BOMBS_MEASURED = 1 };
#endif

enum { MB = 1 << 20 };

typedef struct bomb {
    const char *name, *file;
    void (*make)(FILE *f);
    void (*read)(const char *path);
    int times; /* bytes of memory per byte of the file, beyond 16 MiB */
} bomb;

typedef struct bomb_cost {
    double seconds;
    long kilobytes;
} bomb_cost;

/* Write a text n times; n numbered pieces, separated by commas (fmt has one %x); a literal with its
 * zeros. */
void bomb_repeat(FILE *f, const char *text, int n);
void bomb_number(FILE *f, const char *fmt, int n);
#define BYTES(f, literal) fwrite(literal, 1, sizeof(literal) - 1, f)

/* Reads the file in a separate process. If the environment variable TP_BOMBS is set, checks print
 * the cost. */
bomb_cost bomb_take(const bomb *b, const char *path);

/* Makes and checks n files in the folder of support/folder.h. */
void bombs_check(const bomb *b, size_t n);
#define CHECK(table) bombs_check(table, sizeof table / sizeof *table)

#endif
