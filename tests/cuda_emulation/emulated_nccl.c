/* emulated_nccl.c - the emulation's libnccl.so.2: sums between processes of one host, in the
 * order of the ranks, through shared memory.
 *
 * A sum runs when its stream does, and waits there for all ranks. That they sum the same in the
 * same order is checked. The environment can make it an old version (EMULATION_NCCL_VERSION) and
 * let it fail (EMULATION_NCCL_FAILS=start, =sum). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cuda/device/nccl.h"

enum { RANKS = 8, CHUNK = 1 << 16 };

typedef struct sum_of {
    const void *from;
    void *to;
    size_t n;
    ncclDataType_t type;
    int root; /* -1: all */
} sum_of;

typedef struct shared {
    atomic_int joined, arrived, turn, broken;
    sum_of what[RANKS];
    char chunk[RANKS][CHUNK];
} shared;

struct ncclComm {
    shared *all;
    int ranks, rank;
};

static int groups; /* open ones */

static int fails(const char *what)
{
    const char *text = getenv("EMULATION_NCCL_FAILS");
    return text && strcmp(text, what) == 0;
}

ncclResult_t ncclGetVersion(int *version)
{
    const char *text = getenv("EMULATION_NCCL_VERSION");
    *version = text ? atoi(text) : 22703;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess        ? "no error"
           : result == ncclRemoteError  ? "remote process exited or there was a network error"
           : result == ncclInvalidUsage ? "invalid usage"
                                        : "unhandled system error";
}

/* ---- communicators ---- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/tapegrad-nccl-%ld-%ld", (long)getpid(),
             (long)t.tv_nsec);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    *comm = NULL;
    if (fails("start")) return ncclSystemError;
    if (ranks > RANKS) return ncclInvalidUsage;
    const int file = shm_open(id.internal, O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, sizeof(shared)) != 0) return ncclSystemError;
    ncclComm_t c = calloc(1, sizeof *c);
    *c = (struct ncclComm){ mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0),
                            ranks, rank };
    close(file);
    c->all->joined++;
    while (c->all->joined < ranks) sched_yield();
    if (rank == 0) shm_unlink(id.internal);
    *comm = c;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    munmap(c->all, sizeof(shared));
    free(c);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    c->all->broken = 1;
    return ncclCommDestroy(c);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error)
{
    *error = c->all->broken ? ncclRemoteError : ncclSuccess;
    return ncclSuccess;
}

/* ---- sums ---- */

static void meet(const struct ncclComm *c)
{
    shared *s = c->all;
    const int turn = s->turn;
    if (++s->arrived == c->ranks) {
        s->arrived = 0;
        s->turn++;
    }
    while (s->turn == turn && !s->broken) sched_yield();
}

static void add(const struct ncclComm *c, const sum_of *w, char *to, size_t bytes)
{
    memset(to, 0, bytes);
    for (int k = 0; k < c->ranks; k++) {
        const float *x = (const float *)(const void *)c->all->chunk[k];
        const double *y = (const double *)(const void *)c->all->chunk[k];
        for (size_t i = 0; w->type == ncclFloat32 && i < bytes / sizeof *x; i++)
            ((float *)(void *)to)[i] += x[i];
        for (size_t i = 0; w->type == ncclFloat64 && i < bytes / sizeof *y; i++)
            ((double *)(void *)to)[i] += y[i];
    }
}

typedef struct job {
    struct ncclComm *comm;
    sum_of what;
    cudaStream_t stream;
} job;

static void run(const void *args)
{
    const job *j = args;
    const struct ncclComm *c = j->comm;
    const sum_of *w = &j->what;
    const size_t bytes = w->n * (w->type == ncclFloat32 ? sizeof(float) : sizeof(double));
    c->all->what[c->rank] = *w;
    meet(c);
    for (int k = 0; k < c->ranks; k++) {
        const sum_of *o = &c->all->what[k];
        if (o->n != w->n || o->type != w->type || o->root != w->root) c->all->broken = 1;
    }
    for (size_t at = 0; at < bytes && !c->all->broken; at += CHUNK) {
        const size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
        j->stream->enter(j->stream);
        memcpy(c->all->chunk[c->rank], (const char *)w->from + at, n);
        meet(c);
        if (w->root < 0 || w->root == c->rank) add(c, w, (char *)w->to + at, n);
        j->stream->leave();
        meet(c);
    }
}

static ncclResult_t queue(ncclComm_t c, const sum_of *w, cudaStream_t stream)
{
    const job j = { c, *w, stream };
    if (groups != 1 || w->root >= c->ranks) return ncclInvalidUsage; /* tapegrad groups all */
    if (fails("sum")) return ncclSystemError;
    stream->queue(stream, run, &j, sizeof j);
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    return queue(comm, &(sum_of){ from, to, n, type, -1 }, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    return queue(comm, &(sum_of){ from, to, n, type, root }, stream);
}

ncclResult_t ncclGroupStart(void)
{
    groups++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    groups--;
    return ncclSuccess;
}
