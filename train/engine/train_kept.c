/* train_kept.c - the checkpoints that --keep-last and --keep-best keep beside last and best:
 *
 *     last-000012000.safetensors    the newest of them, by update
 *     best-000009000.safetensors    those with the best validation scores
 *
 * A kept file is a second name (a hard link) of a file that is complete, so it takes no time and,
 * until the first name gets another file, no room; where the file system has no links it is a copy.
 * An older one is removed only when the newer one is on disk. Which ones to keep follows from their
 * names and the scores in them, so a run that was killed anywhere in between needs no other state:
 * resumed, it ends with the same files. Only process 0 calls these functions. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer.h"

static const char *const last_kind = "last", *const best_kind = "best";

enum { NAME = TP_PATH + 64 };

/* A kept checkpoint; the least rank is the first to keep. */
typedef struct kept {
    int64_t update;
    double rank;
} kept;

typedef struct kept_list {
    int n;
    size_t room;
    kept *at;
} kept_list;

/* ---- names ---- */

static const char *path_of(const tp_trainer *r, const char *kind, int64_t update, char path[NAME])
{
    snprintf(path, NAME, "%s/%s-%09" PRId64 ".safetensors", r->folder.path, kind, update);
    return path;
}

/* The update in a name of this kind; -1: it is another file. */
static int64_t update_in(const char *name, const char *kind)
{
    enum { LEAST = 9, MOST = 18 }; /* digits */
    const size_t n = strlen(kind);
    const char *digits = strncmp(name, kind, n) == 0 && name[n] == '-' ? name + n + 1 : "";
    const size_t length = strspn(digits, "0123456789");
    if (length < LEAST || length > MOST || strcmp(digits + length, ".safetensors") != 0) return -1;
    return strtoll(digits, NULL, 10);
}

static bool broken(tp_trainer *r, const char *path, const char *what)
{
    const int error = errno;
    return tp__run_fail(r, "%s cannot be %s: %s; %s", path, what, strerror(error),
                        tp_file_advice(error));
}

/* ---- lists ---- */

/* Reads the rank of a best one from its score. */
static bool rank_best(tp_trainer *r, kept *k)
{
    char path[NAME];
    double score = (double)NAN;
    tp_file *F = tp_file_open(path_of(r, best_kind, k->update, path));
    const bool read = tp_file_ok(F) && tp_file_num(F, r->t->score, &score);
    if (!tp_file_ok(F))
        tp__run_fail(r, "a kept checkpoint cannot be read: %s; move it away", tp_file_why(F));
    else if (!read || !isfinite(score))
        tp__run_fail(r, "%s has no score '%s': it is of another run; move it away", path,
                     r->t->score);
    tp_file_close(F);
    k->rank = r->t->higher ? -score : score;
    return !r->why[0];
}

/* Of equal scores, the earliest is the best, as for best.safetensors. */
static int by_rank(const void *a, const void *b)
{
    const kept *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->update > y->update) - (x->update < y->update);
}

/* Lists the files of a kind without their ranks. */
static bool list(tp_trainer *r, const char *kind, kept_list *all)
{
    DIR *folder = opendir(r->folder.path);
    *all = (kept_list){ 0 };
    if (!folder) return broken(r, r->folder.path, "listed");
    bool done = true;
    for (const struct dirent *e; done && (e = readdir(folder));) {
        const int64_t update = update_in(e->d_name, kind);
        if (update < 0) continue;
        done = tp_reserve(&all->at, &all->room, (size_t)all->n, 1, sizeof *all->at) ||
               tp__run_fail(r, "out of memory");
        if (done) all->at[all->n++] = (kept){ .update = update };
    }
    closedir(folder);
    return done;
}

/* Removes all files of the sorted list but the first `keep`. */
static bool remove_after(tp_trainer *r, const char *kind, const kept_list *all, int64_t keep)
{
    char path[NAME];
    for (int64_t i = keep; i < all->n; i++)
        if (unlink(path_of(r, kind, all->at[i].update, path)) != 0 && errno != ENOENT)
            return broken(r, path, "removed");
    return true;
}

/* ---- adding one ---- */

/* Writes the bytes of `from` to a new temporary file, whose name it returns in `to`. */
static bool copy(tp_trainer *r, const char *from, const char *path, char *to, size_t size)
{
    enum { PIECE = 1 << 20 };
    const char *kind;
    int64_t bytes = 0, done = 0;
    char *piece = malloc(PIECE);
    const int in = piece ? tp_open_regular(from, &bytes, &kind) : -1;
    const int out = in >= 0 ? tp_open_temporary(path, to, size) : -1;
    bool good = out >= 0;
    while (good && done < bytes) {
        const size_t n = tp_read_bytes(in, done, piece, PIECE);
        good = n > 0 && tp_write_bytes(out, piece, n);
        done += (int64_t)n;
    }
    good = good && fsync(out) == 0;
    const int error = errno;
    if (in >= 0) close(in);
    if (out >= 0) close(out);
    if (out >= 0 && !good) unlink(to);
    free(piece);
    errno = error;
    return good || broken(r, path, "written");
}

static bool has_no_links(int error)
{
    return error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK ||
           error == EXDEV;
}

/* Some file systems cannot sync folders and need not, nor can who may write but not list one. */
static bool sync_folder(tp_trainer *r)
{
    const int fd = open(r->folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool done =
        fd < 0 ? errno == EACCES : fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP;
    if (!done) broken(r, r->folder.path, "synced");
    if (fd >= 0) close(fd);
    return done;
}

/* Gives the file `from` this path, too. Renaming one name of a file to another one of it does
 * nothing, so the temporary name is removed in any case. */
static bool add(tp_trainer *r, const char *from, const char *path)
{
    char name[NAME + TP_TEMPORARY];
    snprintf(name, sizeof name, "%s.tmp-%ld", path, (long)getpid());
    unlink(name);
    if (link(from, name) != 0) {
        if (!has_no_links(errno)) return broken(r, path, "written");
        if (!copy(r, from, path, name, sizeof name)) return false;
    }
    const bool done = rename(name, path) == 0 || broken(r, path, "written");
    unlink(name);
    return done && sync_folder(r);
}

/* ---- the run ---- */

/* Later ones are of a course that the run was moved back from; they count when it gets there. */
static bool prune_last(tp_trainer *r)
{
    kept_list all;
    int n = 0;
    bool done = list(r, last_kind, &all);
    for (int i = 0; i < all.n; i++) {
        all.at[i].rank = -(double)all.at[i].update;
        if (all.at[i].update <= r->run.update) all.at[n++] = all.at[i];
    }
    all.n = n;
    if (n > 0) qsort(all.at, (size_t)n, sizeof *all.at, by_rank);
    done = done && remove_after(r, last_kind, &all, r->o->keep_last);
    free(all.at);
    return done;
}

bool tp__run_keep_last(tp_trainer *r)
{
    char path[NAME];
    if (r->o->keep_last == 0 || r->run.rank > 0) return true;
    return add(r, r->folder.last, path_of(r, last_kind, r->run.update, path)) && prune_last(r);
}

/* Lists the best ones but that of the present update, the best first. */
static bool list_best(tp_trainer *r, kept_list *all)
{
    int n = 0;
    bool done = list(r, best_kind, all);
    for (int i = 0; done && i < all->n; i++) {
        if (all->at[i].update == r->run.update) continue;
        all->at[n] = all->at[i];
        done = rank_best(r, &all->at[n++]);
    }
    all->n = n;
    if (n > 0) qsort(all->at, (size_t)n, sizeof *all->at, by_rank);
    return done;
}

bool tp__run_keep_best(tp_trainer *r, double score, bool best)
{
    const kept now = { .update = r->run.update, .rank = r->t->higher ? -score : score };
    const int64_t keep = r->o->keep_best;
    char path[NAME];
    kept_list all;
    int64_t before = 0;
    if (keep == 0 || r->run.rank > 0) return true;
    bool done = list_best(r, &all);
    while (done && before < all.n && by_rank(&all.at[before], &now) < 0) before++;
    const bool wanted = isfinite(score) && before < keep;
    path_of(r, best_kind, now.update, path);
    if (done && wanted)
        done = best ? add(r, r->folder.best, path) : tp__run_save_best(r, path, score);
    if (done) done = remove_after(r, best_kind, &all, wanted ? keep - 1 : keep);
    free(all.at);
    return done;
}

bool tp__run_has_kept(tp_trainer *r)
{
    kept_list last, best = { 0 };
    const bool found =
        (list(r, last_kind, &last) && last.n > 0) || (list(r, best_kind, &best) && best.n > 0);
    free(last.at);
    free(best.at);
    return found;
}

bool tp__run_discard_kept(tp_trainer *r)
{
    const char *const kinds[] = { last_kind, best_kind };
    bool done = true;
    for (int i = 0; done && i < 2; i++) {
        kept_list all;
        done = list(r, kinds[i], &all) && remove_after(r, kinds[i], &all, 0);
        free(all.at);
    }
    return done;
}
