/* progress.c - the progress line: step, the program's own text, ETA. */
#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <tapegrad/train.h>
#include <unistd.h>

void tp__progress_start(tp_progress *p, int64_t first, int64_t last, double limit, bool silent)
{
    *p = (tp_progress){
        .silent = silent,
        .terminal = isatty(STDOUT_FILENO),
        .first = first,
        .last = last,
        .began = tp_seconds(),
        .limit = limit,
    };
}

/* Seconds to the last step at the mean speed so far, or to the time limit if that is earlier. */
static double remaining(const tp_progress *p, int64_t step, double now)
{
    const double passed = now - p->began;
    double left = passed / (double)(step - p->first) * (double)(p->last - step);
    if (p->limit > 0 && p->limit - passed < left) left = p->limit - passed;
    return left > 0 ? left : 0;
}

void tp__print_time(char *text, size_t size, double seconds)
{
    const long long s = (long long)(fmin(seconds, 1e15) + 0.5);
    if (s >= 86400)
        snprintf(text, size, "%lldd%02lldh", s / 86400, s % 86400 / 3600);
    else if (s >= 3600)
        snprintf(text, size, "%lld:%02lld:%02lld", s / 3600, s % 3600 / 60, s % 60);
    else
        snprintf(text, size, "%lld:%02lld", s / 60, s % 60);
}

void tp__progress_step(tp_progress *p, int64_t step, bool report, const char *what)
{
    const double now = tp_seconds();
    char eta[32];
    if (p->silent || (!report && (!p->terminal || now - p->drawn < 0.2))) return;
    tp__print_time(eta, sizeof eta, remaining(p, step, now));
    printf("%sstep %lld/%lld  %s  ETA %s%s", p->terminal ? "\r\033[K" : "", (long long)step,
           (long long)p->last, what, eta, p->terminal ? "" : "\n");
    fflush(stdout);
    p->drawn = now;
    p->shown = p->terminal;
}

void tp__progress_say(tp_progress *p, const char *fmt, va_list ap)
{
    if (p->silent) return;
    if (p->shown) printf("\r\033[K");
    vprintf(fmt, ap);
    printf("\n");
    fflush(stdout);
    p->shown = false;
}

void tp__progress_end(tp_progress *p)
{
    if (p->shown) printf("\n");
    fflush(stdout);
    p->shown = false;
}
