/* one_process.c - a replacement for Criterion's main that runs the tests of a program one after
 * another in one process. The arena that Criterion shares with its processes overlaps
 * ThreadSanitizer's shadow memory. A test that crashes ends the program, and there are no time
 * limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/event.h>

void cri_asserts_passed_incr(void);

/* Criterion's tables of tests and suites; a program may have no suite. */
extern struct criterion_test *__start_cr_tst[], *__stop_cr_tst[];
extern struct criterion_suite *__start_cr_sts[] __attribute__((weak));
extern struct criterion_suite *__stop_cr_sts[] __attribute__((weak));

static const struct criterion_test *now;
static bool failed; /* the running test */
static jmp_buf end_of_test;

void criterion_send_assert(struct criterion_assert_stats *stats)
{
    if (stats->passed) return;
    failed = true;
    fprintf(stderr, "%s:%u: %s\n", stats->file, stats->line, stats->message);
}

void cri_asserts_passed_incr(void) {}

void criterion_continue_test(void) {}

void criterion_abort_test(void)
{
    longjmp(end_of_test, 1);
}

void criterion_skip_test(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("  skipped: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    longjmp(end_of_test, 1);
}

static const struct criterion_test_extra_data *suite_of(const struct criterion_test *t)
{
    for (struct criterion_suite **s = __start_cr_sts; s < __stop_cr_sts; s++)
        if (strcmp((*s)->name, t->category) == 0) return (*s)->data;
    return t->data; /* which already holds all parameters */
}

void criterion_internal_test_setup(void)
{
    const struct criterion_test_extra_data *suite = suite_of(now);
    if (suite != now->data && suite->init) suite->init();
    if (now->data->init) now->data->init();
}

void criterion_internal_test_main(void (*test)(void))
{
    if (setjmp(end_of_test) == 0) test();
}

void criterion_internal_test_teardown(void)
{
    const struct criterion_test_extra_data *suite = suite_of(now);
    if (now->data->fini) now->data->fini();
    if (suite != now->data && suite->fini) suite->fini();
}

/* Runs every test, or those whose SUITE/NAME contains the first argument. Ignores the Criterion
 * flags that CTest passes. */
int main(int argc, char **argv)
{
    const char *wanted = argc > 1 && argv[1][0] != '-' ? argv[1] : "";
    int tests = 0, failures = 0;
    for (struct criterion_test **t = __start_cr_tst; t < __stop_cr_tst; t++) {
        now = *t;
        if (!strstr(now->data->identifier_, wanted) || now->data->disabled) continue;
        fprintf(stderr, "%s\n", now->data->identifier_);
        failed = false;
        now->test();
        tests++;
        failures += failed;
    }
    fprintf(stderr, "%d tests, %d failed\n", tests, failures);
    return failures > 0;
}
