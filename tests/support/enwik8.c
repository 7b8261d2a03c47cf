/* enwik8.c - the program enwik8 on a small synthetic text. */
#include "support/enwik8.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* The text is regular, so that a model can learn from it. */
void make_text(const char *name, int bytes)
{
    static const char *const word[] = {
        "the ", "river ", "stone ", "of ", "mill\n", "and ", "old "
    };
    FILE *f = fopen(name, "w");
    uint32_t z = 7;
    cr_assert(f);
    for (int n = 0; n < bytes;) {
        z = z * 1664525u + 1013904223u;
        n += fprintf(f, "%s", word[(z >> 16) % 7]);
    }
    fclose(f);
}

void enwik8_begin(void)
{
    program_begin("enwik8");
    make_text("text", 20000);
}

double bpc_printed(int64_t *tokens)
{
    long long n = 0;
    double bpc = 0;
    const char *s = strstr(out, "text, ");
    cr_assert(s && sscanf(s, "text, %lld tokens: %lf bpc", &n, &bpc) == 2, "%s", out);
    *tokens = n;
    return bpc;
}
