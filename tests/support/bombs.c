/* bombs.c - writes hostile files and measures reading them. */
#include "support/bombs.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/folder.h"

/* ---- writing ---- */

void bomb_repeat(FILE *f, const char *text, int n)
{
    for (int i = 0; i < n; i++) fputs(text, f);
}

void bomb_number(FILE *f, const char *fmt, int n)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    for (int i = 0; i < n; i++) {
        if (i) fputc(',', f);
        fprintf(f, fmt, i, i);
    }
#pragma GCC diagnostic pop
}

/* ---- measuring ---- */

static void spent(double *seconds, long *kilobytes)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    *kilobytes = u.ru_maxrss;
    *seconds = (double)u.ru_utime.tv_sec + 1e-6 * (double)u.ru_utime.tv_usec +
               (double)u.ru_stime.tv_sec + 1e-6 * (double)u.ru_stime.tv_usec;
}

bomb_cost bomb_take(const bomb *b, const char *path)
{
    int ends[2], status;
    bomb_cost m = { 0 };
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        double before, after;
        long empty, full;
        alarm(120);
        spent(&before, &empty);
        b->read(path);
        spent(&after, &full);
        m = (bomb_cost){ after - before, full - empty };
        _exit(write(ends[1], &m, sizeof m) == sizeof m ? 0 : 1);
    }
    close(ends[1]);
    cr_expect(read(ends[0], &m, sizeof m) == sizeof m && waitpid(child, &status, 0) == child &&
                  status == 0,
              "%s: the reader ended early", b->name);
    close(ends[0]);
    return m;
}

static void check(const bomb *b, const char *path)
{
    enum { FREE = 16 << 10 }; /* kilobytes */
    struct stat s;
    cr_assert_eq(stat(path, &s), 0, "%s", path);
    const bomb_cost m = bomb_take(b, path);
    const double megabytes = (double)s.st_size / MB;
    const double most = FREE + 1024.0 * b->times * megabytes, longest = 2 + 4 * megabytes;
    if (getenv("TP_BOMBS"))
        fprintf(stderr, "%-28s %8.3f MB  %7.1f MB  %6.1f a byte  %6.2f s\n", b->name, megabytes,
                (double)m.kilobytes / 1024, (double)m.kilobytes / 1024 / megabytes, m.seconds);
    if (!BOMBS_MEASURED) return;
    cr_expect((double)m.kilobytes <= most, "%s: %ld KB of memory for %lld bytes", b->name,
              m.kilobytes, (long long)s.st_size);
    cr_expect(m.seconds <= longest, "%s: %.1f s for %lld bytes", b->name, m.seconds,
              (long long)s.st_size);
}

void bombs_check(const bomb *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *path = in_folder(b[i].file);
        FILE *f = fopen(path, "w+b");
        cr_assert(f, "%s", path);
        b[i].make(f);
        cr_assert_eq(fclose(f), 0);
        check(&b[i], path);
        remove(path);
    }
}
