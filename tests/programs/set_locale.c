/* set_locale.c - preloaded into a program, sets the environment's locale, as a program with a
 * graphical interface does. Programs that it starts, such as gnuplot, are left alone. */
#include <locale.h>
#include <stdlib.h>

__attribute__((constructor)) static void set(void)
{
    setlocale(LC_ALL, "");
    unsetenv("LD_PRELOAD");
}
