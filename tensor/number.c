/* number.c - numbers in files by C's rules, in programs that have set another locale, too. The locale is set
 * for the calling thread alone; glibc and musl keep C's locale as a constant, so nothing is allocated. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include <tapegrad/file.h>

void *tp_c_locale_begin(void)
{
    const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return uselocale(c);
}

void tp_c_locale_end(void *before)
{
    uselocale(before);
}

double tp_number_read(const char *text, char **end)
{
    void *before = tp_c_locale_begin();
    const double x = strtod(text, end);
    tp_c_locale_end(before);
    return x;
}

int tp_number_write(char *text, size_t size, double x, int digits)
{
    int length;
    void *before = tp_c_locale_begin();
    do {
        length = snprintf(text, size, "%.*g", digits, x);
    } while (digits++ < 17 && strtod(text, NULL) != x);
    tp_c_locale_end(before);
    return length;
}
