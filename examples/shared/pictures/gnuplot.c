/* gnuplot.c - starts gnuplot and has it draw. No shell is involved, and gnuplot sees no file name:
 * it draws into an open, unnamed file. Commands and the mark that ends a script share one socket,
 * which raises no SIGPIPE. Standard error goes to a file, so that gnuplot never waits for a
 * reader. */
#include "gnuplot.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MARK "tapegrad: drawn\n"

extern char **environ;

static bool failed(char *why, size_t room, const char *step)
{
    snprintf(why, room, "%s failed (%s)", step, strerror(errno));
    return false;
}

/* Starts gnuplot in its own process group: Ctrl-C is for the program. -d: skips ~/.gnuplot. */
static int spawn(gnuplot *g, int theirs)
{
    char name[] = "gnuplot", defaults[] = "-d";
    char *const args[] = { name, defaults, NULL };
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    int error = posix_spawn_file_actions_init(&files);
    if (error) return error;
    error = posix_spawnattr_init(&attributes);
    if (!error) {
        if (!error) error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
        const int from[4] = { theirs, theirs, fileno(g->errors), fileno(g->drawn) };
        for (int fd = 0; fd < 4 && !error; fd++)
            error = posix_spawn_file_actions_adddup2(&files, from[fd], fd);
        if (!error) error = posix_spawnp(&g->pid, name, &files, &attributes, args, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&files);
    return error;
}

static bool begin(gnuplot *g, char *why, size_t room)
{
    int ends[2];
    g->drawn = tmpfile();
    g->errors = tmpfile();
    if (!g->drawn || !g->errors) return failed(why, room, "creating a temporary file");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return failed(why, room, "creating a socket");
    const int error = spawn(g, ends[1]);
    close(ends[1]);
    if (!error) {
        g->channel = ends[0];
        return true;
    }
    close(ends[0]);
    g->pid = 0;
    if (error == ENOENT) {
        snprintf(why, room, "gnuplot is missing: apt-get install gnuplot-nox");
        return false;
    }
    errno = error;
    return failed(why, room, "starting gnuplot");
}

static bool send_all(int channel, const char *text, size_t n)
{
    while (n > 0) {
        const ssize_t sent = send(channel, text, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return false;
        text += sent;
        n -= (size_t)sent;
    }
    return true;
}

static bool await_mark(int channel)
{
    size_t got = 0;
    while (got < strlen(MARK)) {
        char text[sizeof MARK];
        const ssize_t n = recv(channel, text, strlen(MARK) - got, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0 || memcmp(text, &MARK[got], (size_t)n) != 0) return false;
        got += (size_t)n;
    }
    return true;
}

static bool read_drawn(const gnuplot *g, char **bytes, size_t *size, char *why, size_t room)
{
    struct stat s;
    const int fd = fileno(g->drawn);
    if (fstat(fd, &s) != 0) return failed(why, room, "reading the picture");
    *size = (size_t)s.st_size;
    *bytes = malloc(*size + 1);
    size_t got = 0;
    while (*bytes && got < *size) {
        const ssize_t n = pread(fd, *bytes + got, *size - got, (off_t)got);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        got += (size_t)n;
    }
    if (*bytes && got == *size) return true;
    failed(why, room, "reading the picture");
    free(*bytes);
    *bytes = NULL;
    return false;
}

/* Waits for its end; reports the last line of its standard error, or its status. */
static void explain(gnuplot *g, char *why, size_t room)
{
    char line[256], last[256] = "";
    int status = 0;
    while (waitpid(g->pid, &status, 0) < 0 && errno == EINTR) continue;
    g->pid = 0;
    rewind(g->errors);
    while (fgets(line, sizeof line, g->errors))
        if (line[strspn(line, " ^\n")]) snprintf(last, sizeof last, "%s", line);
    last[strcspn(last, "\n")] = '\0';
    if (last[0])
        snprintf(why, room, "gnuplot failed: %s", last + strspn(last, " "));
    else if (WIFSIGNALED(status))
        snprintf(why, room, "gnuplot was ended by signal %d", WTERMSIG(status));
    else
        snprintf(why, room, "gnuplot ended with status %d", WEXITSTATUS(status));
}

bool gnuplot_run(gnuplot *g, const char *script, size_t n, char **bytes, size_t *size, char *why,
                 size_t room)
{
    static const char mark[] = "\nset print '-'\nprint 'tapegrad: drawn'\nset print\n";
    bool done = g->pid || begin(g, why, room);
    if (done && !(send_all(g->channel, script, n) && send_all(g->channel, mark, strlen(mark)) &&
                  await_mark(g->channel))) {
        shutdown(g->channel, SHUT_RDWR);
        explain(g, why, room);
        close(g->channel);
        done = false;
    }
    done = done && read_drawn(g, bytes, size, why, room);
    if (!done) gnuplot_end(g);
    return done;
}

void gnuplot_end(gnuplot *g)
{
    if (g->pid) {
        close(g->channel); /* ends its input */
        while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR) continue;
    }
    if (g->drawn) fclose(g->drawn);
    if (g->errors) fclose(g->errors);
    *g = (gnuplot){ 0 };
}
