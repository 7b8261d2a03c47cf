/* support_enwik8.c - running the program enwik8 in tests. */
#include "support_enwik8.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tapegrad/file.h>
#include <time.h>
#include <unistd.h>

#define ENWIK8 TP_BIN_DIR "/enwik8"

char out[20000], errors[20000];

static char place[] = "/tmp/tapegrad-enwik8-XXXXXX";

/* Words of a few syllables in lines, so that there is something to learn. */
static void make_text(const char *name, int bytes)
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
    cr_assert(mkdtemp(place) && chdir(place) == 0);
    make_text("text", 20000);
    setenv("OMP_WAIT_POLICY", "passive", 1); /* spinning threads starve a busy machine */
}

void enwik8_end(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", place);
    cr_assert(system(command) == 0);
}

void slurp(const char *name, char *text, size_t size)
{
    FILE *f = fopen(name, "r");
    const size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = '\0';
    if (f) fclose(f);
}

int enwik8_under(const char *prefix, const char *args)
{
    char command[4096];
    snprintf(command, sizeof command, "%s %s %s >out 2>err", prefix, ENWIK8, args);
    const int status = system(command);
    slurp("out", out, sizeof out);
    slurp("err", errors, sizeof errors);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int enwik8(const char *args)
{
    return enwik8_under("", args);
}

void succeed(const char *args)
{
    const int status = enwik8(args);
    cr_assert(status == 0, "enwik8 %s: status %d\n%s", args, status, errors);
}

void expect_refusal(const char *args, int status, const char *message)
{
    const int got = enwik8(args);
    cr_expect_eq(got, status, "enwik8 %s: status %d\n%s", args, got, errors);
    cr_expect(strstr(errors, message), "enwik8 %s:\n%s", args, errors);
}

pid_t start(const char *args)
{
    char text[1024], name[] = ENWIK8, *words[80] = { name };
    int n = 1;
    snprintf(text, sizeof text, "%s", args);
    for (char *w = strtok(text, " "); w && n < 79; w = strtok(NULL, " ")) words[n++] = w;
    const pid_t child = fork();
    if (child == 0) {
        const int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        dup2(open("err", O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
        execv(name, words);
        _exit(127);
    }
    cr_assert(child > 0);
    return child;
}

void await_reports(const char *log, int lines)
{
    for (int i = 0; i < 20000; i++) {
        slurp(log, out, sizeof out);
        int n = 0;
        for (const char *s = out; *s; s++) n += *s == '\n';
        if (n >= lines) return;
        nap(0.002);
    }
    cr_assert_fail("%s never had %d reports", log, lines);
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

bool same_bytes(const char *a, const char *b)
{
    char command[256];
    snprintf(command, sizeof command, "cmp -s %s %s", a, b);
    return system(command) == 0;
}

bool same_log(const char *a, const char *b)
{
    char command[1024];
    snprintf(command, sizeof command,
             "test -s %s && for f in %s %s; do sed "
             "'s/\"seconds[^,]*,//;s/\"tokens_per_s[^,]*,\"memory\":[0-9]*//' $f > $f.cmp; done;"
             "cmp %s.cmp %s.cmp; s=$?; rm -f %s.cmp %s.cmp; exit $s",
             a, a, b, a, b, a, b);
    return system(command) == 0;
}

void nap(double seconds)
{
    const struct timespec t = { .tv_sec = (time_t)seconds,
                                .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };
    nanosleep(&t, NULL);
}

int64_t update_in(const char *path)
{
    int64_t update = -1;
    tp_file *F = tp_file_open(path);
    cr_expect(tp_file_ok(F), "%s", tp_file_why(F));
    tp_file_int(F, "update", &update);
    tp_file_close(F);
    return update;
}
