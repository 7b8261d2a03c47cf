/* test_run_folder.c - a run's folder and its lock when processes begin and give up
 * simultaneously. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/folder.h"
#include "support/program.h"
#include "train/engine/folder.h"

TestSuite(run_folder, .init = make_folder, .fini = remove_folder, .timeout = 120);

enum { ROUNDS = 150, MOST = 3 };

/* Shared by processes: all wait for each other, and those that lock the folder hold it until all
 * have tried. */
typedef struct round_state {
    atomic_int ready, tried, locked, lost;
} round_state;

static void await(atomic_int *count, int n)
{
    while (atomic_load(count) < n) sched_yield();
}

/* gives_up: the process finds after locking that it cannot run. */
static void try_once(round_state *s, const char *path, int processes, bool gives_up)
{
    tp_folder *R = malloc(sizeof *R);
    alarm(60);
    atomic_fetch_add(&s->ready, 1);
    await(&s->ready, processes);
    const bool mine = tp__folder_open(R, path);
    atomic_fetch_add(&s->locked, mine && !gives_up);
    if (!gives_up) atomic_fetch_add(&s->tried, 1);
    if (mine && !gives_up) {
        await(&s->tried, processes);
        atomic_fetch_add(&s->lost, tp__folder_vanished(R));
        FILE *f = fopen(R->last, "w"); /* no longer empty */
        if (f) fclose(f);
    }
    if (gives_up || !mine) tp__folder_forget(R);
    tp__folder_close(R);
    if (gives_up) atomic_fetch_add(&s->tried, 1);
    _exit(0);
}

static void race(int processes, bool one_gives_up)
{
    round_state *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(s != MAP_FAILED);
    for (int i = 0; i < ROUNDS; i++) {
        pid_t child[MOST];
        char name[40];
        int status;
        snprintf(name, sizeof name, "parent%d/run", i);
        atomic_store(&s->ready, 0);
        atomic_store(&s->tried, 0);
        atomic_store(&s->locked, 0);
        atomic_store(&s->lost, 0);
        for (int k = 0; k < processes; k++) {
            child[k] = fork();
            if (child[k] == 0) try_once(s, in_folder(name), processes, one_gives_up && k == 0);
        }
        for (int k = 0; k < processes; k++) {
            waitpid(child[k], &status, 0);
            cr_assert(status == 0, "round %d: status %x", i, (unsigned)status);
        }
        const int locked = atomic_load(&s->locked);
        cr_assert(locked == 1 || (one_gives_up && locked == 0), "round %d: %d locked it", i,
                  locked);
        cr_assert_eq(atomic_load(&s->lost), 0, "round %d: the folder vanished", i);
    }
    munmap(s, sizeof *s);
}

Test(run_folder, one_of_several_starts)
{
    race(2, false);
    race(3, false);
}

/* A process that gives up may have been in the way but never takes another's folder. */
Test(run_folder, one_gives_up)
{
    race(2, true);
}
