/* oom.c - runs attempts with failing allocations. */
#include "support/oom.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "support/malloc.h"

#if defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 5 }; /* every fifth n, since the test is slow */
#else
enum { STRIDE = 1 };
#endif
static const size_t shortages[] = { 1, SIZE_MAX / 2 }; /* how many allocations fail */

void end_attempt(attempt *t, bool ok, const char *why)
{
    t->calls = malloc_heal();
    t->ok = ok;
    snprintf(t->why, sizeof t->why, "%s", why ? why : "no reason is given");
}

/* The last two are libpng's. */
static bool tells_of_memory(const char *why)
{
    return strstr(why, "out of memory") || strstr(why, "out of host memory") ||
           strstr(why, "Out of memory") || strstr(why, "insufficient memory");
}

void for_every_n(const char *name, void (*f)(void *env, attempt *t), void *env, int least)
{
    malloc_fail(0, 0);
    for (size_t s = 0; s < sizeof shortages / sizeof *shortages; s++) {
        int failures = 0;
        attempt t = { .n = 1, .count = shortages[s] };
        for (;; t.n += STRIDE) {
            const int64_t live = malloc_live();
            f(env, &t);
            cr_expect_eq(malloc_live(), live, "%s, allocation %zu: %lld blocks leak", name, t.n,
                         (long long)(malloc_live() - live));
            cr_expect(t.ok || tells_of_memory(t.why), "%s, allocation %zu: %s", name, t.n, t.why);
            failures += !t.ok;
            if (t.calls < t.n) break;
        }
        cr_expect(t.ok, "%s fails undisturbed: %s", name, t.why);
        cr_expect(failures * STRIDE >= least, "%s: only %d allocations failed", name, failures);
    }
}
