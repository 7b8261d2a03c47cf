/* mpi.c - a transport over MPI, the only file that knows it. It is compiled once for each MPI,
 * since their binary interfaces differ (tapegrad/transport.h says how).
 *
 * Messages travel as bytes on a communicator of their own. Long ones are cut, so that a slow
 * network shows that bytes arrive (and MPI counts in int); both sides cut at the same places,
 * and MPI keeps the order of messages with the same tag.
 *
 * MPI moves bytes only while it is called. A thread of this file calls it while messages are under
 * way and the program computes: at 1 Gbit/s a tenth of an exchange stays exposed, without the
 * thread a half. */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/transport.h>
#include <time.h>

enum { PIECE = 256 << 10, UNUSED_TAG = 16384 };

/* ---- errors ---- */

static char failure[MPI_MAX_ERROR_STRING + 100]; /* the first one */

static bool fine(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;
    if (code == MPI_SUCCESS) return true;
    MPI_Error_string(code, text, &length);
    if (!failure[0]) snprintf(failure, sizeof failure, "%s: %s", call, text);
    return false;
}

static const char *why_of(void *env)
{
    (void)env;
    return failure;
}

/* ---- progress ---- */

static MPI_Comm world = MPI_COMM_NULL;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held during each call of MPI */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;   /* a message began, or the run ends */
static pthread_t mover;
static bool moves, ends;
static int64_t under_way; /* messages */
static uint64_t calls;    /* by the program */

/* Asks every half millisecond for a message that nobody sends; no longer after a failure. */
static void *move_bytes(void *env)
{
    const struct timespec pause = { .tv_nsec = 500000 };
    uint64_t seen = 0;
    int found;
    pthread_mutex_lock(&lock);
    while (!ends && !failure[0]) {
        if (under_way == 0) {
            pthread_cond_wait(&wake, &lock);
            continue;
        }
        if (seen == calls) MPI_Iprobe(MPI_ANY_SOURCE, UNUSED_TAG, world, &found, MPI_STATUS_IGNORE);
        seen = calls;
        pthread_mutex_unlock(&lock);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return env;
}

/* Signals go to the threads of the program. */
static void start_mover(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    moves = pthread_create(&mover, NULL, move_bytes, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void stop_mover(void)
{
    if (!moves) return;
    pthread_mutex_lock(&lock);
    ends = true;
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
    pthread_join(mover, NULL);
    moves = false;
}

/* ---- messages ---- */

typedef struct request {
    int pieces, done;
    MPI_Request piece[];
} request;

static request *new_request(size_t n)
{
    const size_t pieces = n / PIECE + (n % PIECE != 0 || n == 0);
    request *q = malloc(sizeof *q + pieces * sizeof q->piece[0]);
    if (q)
        *q = (request){ .pieces = (int)pieces };
    else if (!failure[0])
        snprintf(failure, sizeof failure, "out of memory for a message");
    return q;
}

static int size_of_piece(size_t n, int i)
{
    const size_t rest = n - (size_t)i * PIECE;
    return rest < PIECE ? (int)rest : PIECE;
}

static void enter(void)
{
    pthread_mutex_lock(&lock);
    calls++;
}

static void leave(void)
{
    if (under_way == 1) pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
}

/* What was begun before a failure stays with MPI: after an error nothing is sent any more, and the
 * process ends. */
static void *send_bytes(void *env, int to, int tag, const void *data, size_t n)
{
    request *q = new_request(n);
    bool done = q != NULL;
    (void)env;
    enter();
    for (int i = 0; done && i < q->pieces; i++)
        done = fine(MPI_Isend((const char *)data + (size_t)i * PIECE, size_of_piece(n, i), MPI_BYTE,
                              to, tag, world, &q->piece[i]),
                    "MPI_Isend");
    if (done) under_way++;
    leave();
    if (!done) free(q);
    return done ? q : NULL; /* NOLINT(clang-analyzer-optin.mpi.MPI-Checker) */
}

static void *receive_bytes(void *env, int from, int tag, void *data, size_t n)
{
    request *q = new_request(n);
    bool done = q != NULL;
    (void)env;
    enter();
    for (int i = 0; done && i < q->pieces; i++)
        done = fine(MPI_Irecv((char *)data + (size_t)i * PIECE, size_of_piece(n, i), MPI_BYTE, from,
                              tag, world, &q->piece[i]),
                    "MPI_Irecv");
    if (done) under_way++;
    leave();
    if (!done) free(q);
    return done ? q : NULL; /* NOLINT(clang-analyzer-optin.mpi.MPI-Checker) */
}

static int test(void *env, void *message)
{
    request *q = message;
    MPI_Status status;
    const int before = q->done;
    int done = 1;
    bool well = true;
    (void)env;
    enter();
    while (well && done && q->done < q->pieces) {
        well = fine(MPI_Test(&q->piece[q->done], &done, &status), "MPI_Test");
        q->done += done;
    }
    if (!well || done) under_way--;
    leave();
    if (well && !done) return q->done > before ? 2 : 0;
    free(q);
    return well ? 1 : -1;
}

/* ---- the transport ---- */

static tp_transport transport;
static char name[100], host[MPI_MAX_PROCESSOR_NAME + 1];
static bool began_here;               /* and so MPI ends here */
static int level = MPI_THREAD_SINGLE; /* of threads, which MPI supports */

/* "Open MPI v4.1.4, package: ..." and "MPICH Version:	4.0.2\n..." become "Open MPI 4.1.4" and
 * "MPICH 4.0.2". */
static void shorten(char *to, size_t size, char *from)
{
    size_t n = 0;
    from[strcspn(from, ",\n")] = '\0';
    to[0] = '\0';
    for (char *word = strtok(from, " \t"); word && n < size; word = strtok(NULL, " \t")) {
        if (strncmp(word, "Version", 7) == 0 || strcmp(word, ":") == 0) continue;
        if (word[0] == 'v' && isdigit((unsigned char)word[1])) word++;
        n += (size_t)snprintf(to + n, size - n, "%s%s", n > 0 ? " " : "", word);
    }
}

static bool look_around(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Comm neighbours;
    int length;
    const bool done =
        fine(MPI_Get_library_version(version, &length), "MPI_Get_library_version") &&
        fine(MPI_Get_processor_name(host, &length), "MPI_Get_processor_name") &&
        fine(MPI_Comm_rank(world, &transport.rank), "MPI_Comm_rank") &&
        fine(MPI_Comm_size(world, &transport.ranks), "MPI_Comm_size") &&
        fine(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &neighbours),
             "MPI_Comm_split_type") &&
        fine(MPI_Comm_rank(neighbours, &transport.local_rank), "MPI_Comm_rank") &&
        fine(MPI_Comm_size(neighbours, &transport.local_ranks), "MPI_Comm_size") &&
        fine(MPI_Comm_free(&neighbours), "MPI_Comm_free");
    if (done) shorten(name, sizeof name, version);
    return done;
}

static bool has_tags(void)
{
    int *most, found = 0;
    if (!fine(MPI_Comm_get_attr(world, MPI_TAG_UB, (void *)&most, &found), "MPI_Comm_get_attr"))
        return false;
    if (!found || *most >= UNUSED_TAG) return true;
    snprintf(failure, sizeof failure, "this MPI has tags up to %d, and %d are needed", *most,
             UNUSED_TAG);
    return false;
}

static bool begin(void)
{
    int begun = 0;
    if (!fine(MPI_Initialized(&begun), "MPI_Initialized")) return false;
    if (begun
            ? !fine(MPI_Query_thread(&level), "MPI_Query_thread")
            : !fine(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread"))
        return false;
    began_here = !begun;
    if (level < MPI_THREAD_FUNNELED) {
        snprintf(failure, sizeof failure,
                 "this MPI does not support threads (MPI_THREAD_FUNNELED is needed)");
        return false;
    }
    return fine(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup") &&
           fine(MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

/* Waits for the other processes if MPI ends here. */
static void close_world(void *env)
{
    (void)env;
    stop_mover();
    MPI_Comm_free(&world);
    if (began_here) MPI_Finalize();
}

const tp_transport *tp_transport_open(char *why, size_t size)
{
    if (!begin() || !has_tags() || !look_around()) {
        snprintf(why, size, "MPI cannot be used: %s", failure);
        return NULL;
    }
    /* A program that initialised MPI may call it at the same time. */
    if (level >= (began_here ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE)) start_mover();
    transport.name = name;
    transport.host = host;
    transport.send = send_bytes;
    transport.receive = receive_bytes;
    transport.test = test;
    transport.why = why_of;
    transport.close = close_world;
    return &transport;
}
