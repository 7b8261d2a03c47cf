/* folder.c - creates and locks a training run's folder; writes its config.json. */
#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <tapegrad/file.h>
#include <unistd.h>

static bool fail(tp_folder *R, const char *what)
{
    const int error = errno;
    snprintf(R->why, sizeof R->why, "run folder %s: %s: %s; %s", R->path, what, strerror(error),
             tp_file_advice(error));
    return false;
}

/* Has the open file left this path? False if the disk cannot tell: the next write reports that. */
static bool moved(const char *path, int fd)
{
    struct stat there, ours;
    if (stat(path, &there) != 0) return errno == ENOENT || errno == ENOTDIR || errno == ESTALE;
    return fstat(fd, &ours) == 0 && (there.st_ino != ours.st_ino || there.st_dev != ours.st_dev);
}

/* Does an error of fcntl mean that the file system has no locks? */
static bool has_no_locks(int error)
{
    return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL;
}

/* Result of trying to lock a folder. AGAIN: another process removed or released the lock. */
typedef enum attempt { LOCKED, REFUSED, AGAIN } attempt;

static attempt in_use(tp_folder *R, int fd)
{
    struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    if (fcntl(fd, F_GETLK, &all) != 0) all.l_pid = 0;
    if (all.l_type == F_UNLCK) return AGAIN;
    snprintf(R->why, sizeof R->why,
             "run folder %s: is in use by process %ld; wait for it, or choose another --run-dir",
             R->path, (long)all.l_pid);
    return REFUSED;
}

static attempt lock_file(tp_folder *R, const char *path, int fd)
{
    struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    if (fcntl(fd, F_SETLK, &all) == 0) return moved(path, fd) ? AGAIN : LOCKED;
    if (errno == EACCES || errno == EAGAIN) return in_use(R, fd);
    R->no_locks = has_no_locks(errno);
    if (R->no_locks) return LOCKED;
    fail(R, "cannot be locked");
    return REFUSED;
}

static attempt try_to_lock(tp_folder *R)
{
    char path[TP_PATH + 32], why[1200];
    if (!tp_make_folders(R->path, why, sizeof why)) {
        snprintf(R->why, sizeof R->why, "run folder %s", why);
        return REFUSED;
    }
    snprintf(path, sizeof path, "%s/lock", R->path);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        const bool removed = errno == ENOENT; /* the folder, by another process */
        fail(R, "cannot be written");
        return removed ? AGAIN : REFUSED;
    }
    const attempt result = lock_file(R, path, fd);
    if (result == LOCKED)
        R->lock = fd;
    else
        close(fd);
    return result;
}

/* Makes and locks the folder. If processes start together, one that cannot run may remove the
 * folder while another finds it. */
static bool lock(tp_folder *R)
{
    enum { ATTEMPTS = 100 };
    attempt result = AGAIN;
    for (int i = 0; i < ATTEMPTS && result == AGAIN; i++) result = try_to_lock(R);
    if (result == LOCKED) R->why[0] = '\0';
    if (result == AGAIN && !R->why[0])
        snprintf(
            R->why, sizeof R->why,
            "run folder %s: other processes lock and remove it; start again, or choose another "
            "--run-dir",
            R->path);
    return result == LOCKED;
}

/* Locks the folder too, because the lock file may be removed during a run. On file systems that
 * cannot lock a folder, only the lock file protects it. */
static bool lock_folder(tp_folder *R)
{
    R->folder = open(R->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (R->folder >= 0 && flock(R->folder, LOCK_EX | LOCK_NB) == 0) {
        R->no_locks = false;
        return true;
    }
    const bool used = R->folder >= 0 && errno == EWOULDBLOCK;
    if (R->folder >= 0) close(R->folder);
    R->folder = -1;
    if (used)
        snprintf(R->why, sizeof R->why,
                 "run folder %s: is in use by %s; wait for it, or choose another --run-dir",
                 R->path,
                 R->no_locks ? "another process" : "a process whose lock file was removed");
    return !used;
}

/* A killed process's temporary file, the engine's or the program's: NAME.tmp-PID or
 * NAME.tmp-PID-N. */
static bool is_leftover(const char *name)
{
    static const char digits[] = "0123456789";
    const char *temporary = strstr(name, ".tmp-");
    const char *number = temporary ? temporary + strlen(".tmp-") : "";
    const size_t pid = strspn(number, digits);
    const char *rest = number + pid + (number[pid] == '-');
    return temporary > name && pid > 0 && rest[strspn(rest, digits)] == '\0';
}

/* Safe only under the lock: no other process writes here. */
static void clear_leftovers(const tp_folder *R)
{
    DIR *folder = R->no_locks ? NULL : opendir(R->path);
    for (const struct dirent *e; folder && (e = readdir(folder));)
        if (is_leftover(e->d_name)) unlinkat(dirfd(folder), e->d_name, 0);
    if (folder) closedir(folder);
}

bool tp__folder_name(tp_folder *R, const char *path)
{
    *R = TP_NO_FOLDER;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    if (n == 0 || n >= TP_PATH) {
        snprintf(R->why, sizeof R->why, "run folder: the name is %s", n ? "too long" : "empty");
        return false;
    }
    snprintf(R->path, sizeof R->path, "%.*s", (int)n, path);
    snprintf(R->last, sizeof R->last, "%s/last.safetensors", R->path);
    snprintf(R->best, sizeof R->best, "%s/best.safetensors", R->path);
    snprintf(R->log, sizeof R->log, "%s/log.jsonl", R->path);
    snprintf(R->config, sizeof R->config, "%s/config.json", R->path);
    return true;
}

bool tp__folder_open(tp_folder *R, const char *path)
{
    if (!tp__folder_name(R, path)) return false;
    R->made = tp__missing(R->path);
    if (!lock(R) || !lock_folder(R)) return false;
    clear_leftovers(R);
    return true;
}

void tp__folder_forget(const tp_folder *R)
{
    char path[TP_PATH + 32];
    snprintf(path, sizeof path, "%s/lock", R->path);
    if (R->lock < 0 || R->no_locks || !R->made) return; /* others may use it */
    if (unlink(path) == 0) rmdir(R->path);              /* fails unless it is empty */
}

void tp__folder_close(tp_folder *R)
{
    if (R->lock >= 0) close(R->lock);
    if (R->folder >= 0) close(R->folder);
    R->lock = R->folder = -1;
}

bool tp__missing(const char *path)
{
    errno = 0;
    return access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

bool tp__folder_vanished(const tp_folder *R)
{
    char path[TP_PATH + 32];
    snprintf(path, sizeof path, "%s/lock", R->path);
    if (!moved(path, R->lock)) return false;
    return R->folder < 0 || moved(R->path, R->folder) || tp__missing(R->last);
}

/* With the fewest digits, from 12 on, with which all numbers read back as they are: --config starts
 * a run with the same bits. NULL: out of memory. */
static char *exact_text(const json_t *config)
{
    void *locale = tp_c_locale_begin();
    char *text = NULL;
    bool exact = false;
    for (size_t digits = 12; digits <= 17 && !exact; digits++) {
        free(text);
        text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
        json_t *back = text ? json_loads(text, 0, NULL) : NULL;
        exact = json_equal(config, back);
        json_decref(back);
    }
    tp_c_locale_end(locale);
    return text;
}

bool tp__folder_config(tp_folder *R, json_t *config)
{
    char *text = exact_text(config);
    json_decref(config);
    const bool done = text && tp_file_replace(R->config, text, strlen(text), R->why, sizeof R->why);
    if (!text) snprintf(R->why, sizeof R->why, "%s cannot be written: out of memory", R->config);
    free(text);
    return done;
}
