/* run.c - the folder that a training run writes to: made, locked, and described by config.json. */
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "replace.h"

static bool fail(run_dir *R, const char *what)
{
    const int error = errno;
    snprintf(R->why, sizeof R->why, "run folder %s: %s: %s; %s", R->path, what, strerror(error),
             remedy(error));
    return false;
}

bool run_make_folders(const char *path)
{
    char part[RUN_PATH];
    snprintf(part, sizeof part, "%s", path);
    for (char *s = part + 1; *s; s++)
        if (*s == '/') {
            *s = '\0';
            if (mkdir(part, 0777) != 0 && errno != EEXIST) return false;
            *s = '/';
        }
    return mkdir(part, 0777) == 0 || errno == EEXIST;
}

static bool lock(run_dir *R)
{
    char path[RUN_PATH + 32];
    struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    snprintf(path, sizeof path, "%s/lock", R->path);
    R->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (R->lock < 0) return fail(R, "cannot be written");
    if (fcntl(R->lock, F_SETLK, &all) == 0) return true;
    if (errno != EACCES && errno != EAGAIN) return fail(R, "cannot be locked");
    all.l_type = F_WRLCK;
    if (fcntl(R->lock, F_GETLK, &all) != 0) all.l_pid = 0;
    snprintf(R->why, sizeof R->why,
             "run folder %s: is in use by process %ld; wait for it, or choose another --run-dir",
             R->path, (long)all.l_pid);
    return false;
}

static bool is_leftover(const char *name)
{
    return strstr(name, ".safetensors.tmp-") || strcmp(name, "log.jsonl.new") == 0 ||
           strcmp(name, "config.json.new") == 0;
}

/* Removes what a killed process was writing. The folder is ours alone by now. */
static void clear_leftovers(const run_dir *R)
{
    DIR *folder = opendir(R->path);
    for (const struct dirent *e; folder && (e = readdir(folder));)
        if (is_leftover(e->d_name)) unlinkat(dirfd(folder), e->d_name, 0);
    if (folder) closedir(folder);
}

bool run_open(run_dir *R, const char *path)
{
    *R = (run_dir){ .lock = -1 };
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    if (n == 0 || n >= RUN_PATH) {
        snprintf(R->why, sizeof R->why, "run folder: the name is %s", n ? "too long" : "empty");
        return false;
    }
    snprintf(R->path, sizeof R->path, "%.*s", (int)n, path);
    snprintf(R->last, sizeof R->last, "%s/last.safetensors", R->path);
    snprintf(R->best, sizeof R->best, "%s/best.safetensors", R->path);
    snprintf(R->log, sizeof R->log, "%s/log.jsonl", R->path);
    snprintf(R->config, sizeof R->config, "%s/config.json", R->path);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error to report, not a kill */
    if (!run_make_folders(R->path)) return fail(R, "cannot be made");
    if (!lock(R)) return false;
    clear_leftovers(R);
    return true;
}

void run_close(run_dir *R)
{
    if (R->lock >= 0) close(R->lock);
    R->lock = -1;
}

bool run_vanished(const run_dir *R)
{
    char path[RUN_PATH + 32];
    struct stat there, ours;
    snprintf(path, sizeof path, "%s/lock", R->path);
    return stat(path, &there) != 0 || fstat(R->lock, &ours) != 0 || there.st_ino != ours.st_ino ||
           there.st_dev != ours.st_dev;
}

bool run_write_config(run_dir *R, json_t *config)
{
    char *text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    json_decref(config);
    errno = ENOMEM;
    const bool done = text && replace_file(R->config, text, strlen(text));
    const int error = errno;
    free(text);
    errno = error;
    return done || fail(R, "config.json cannot be written");
}

void run_absolute(char **path)
{
    char here[RUN_PATH], full[2 * RUN_PATH];
    if (!*path || (*path)[0] == '/' || !getcwd(here, sizeof here)) return;
    snprintf(full, sizeof full, "%s/%s", here, *path);
    char *copy = strdup(full);
    if (!copy) return;
    free(*path);
    *path = copy;
}

static volatile sig_atomic_t stop_signal;

static void note(int signal)
{
    stop_signal = signal;
}

void run_catch_signals(void)
{
    struct sigaction action = { .sa_handler = note, .sa_flags = (int)(SA_RESETHAND | SA_RESTART) };
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction before;
    sigaction(SIGHUP, NULL, &before);
    if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, NULL); /* nohup ignores it */
}

int run_stop_signal(void)
{
    return stop_signal;
}
