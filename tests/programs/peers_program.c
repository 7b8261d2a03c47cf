/* peers_program.c - one of several processes, for test_mpi. The first argument is its task. */
#define _GNU_SOURCE /* sched_getaffinity */
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/peers.h>
#include <time.h>
#include <unistd.h>

static tp_peers *G;
static int rank, ranks;

static void need(bool done, const char *what)
{
    if (done) return;
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, tp_peers_why(G));
    _exit(1);
}

static void lost(void *env, const char *why)
{
    (void)env;
    fprintf(stderr, "peers_program: %s\n", why);
    _exit(1);
}

/* ---- small exchanges ---- */

static void gather(void)
{
    int all[64], mine = rank * rank;
    need(tp_peers_gather(G, &mine, sizeof mine, all), "gather");
    for (int k = 0; k < ranks; k++) need(all[k] == k * k, "what was gathered");
}

/* Sums that depend on their order. Prints their bits. */
static void sum(void)
{
    double x[100];
    uint64_t bits, hash = 0;
    for (int i = 0; i < 100; i++) x[i] = pow(-10, (i * 7 + rank * 5) % 23) / (3 + i + rank);
    need(tp_peers_sum(G, x, 100), "sum");
    for (int i = 0; i < 100; i++) {
        memcpy(&bits, &x[i], sizeof bits);
        hash = hash * 1099511628211U + bits;
    }
    printf("sum %016llx\n", (unsigned long long)hash);
}

static void broadcast(void)
{
    char text[6] = "other";
    if (rank == 0) memcpy(text, "zeros", sizeof text);
    need(tp_peers_broadcast(G, text, sizeof text), "broadcast");
    need(strcmp(text, "zeros") == 0, "what was broadcast");
}

static void any(void)
{
    need(tp_peers_any(G, rank == ranks - 1), "true in one");
    need(!tp_peers_any(G, false), "true in none");
}

/* ---- long messages ---- */

enum { LONG = 50 << 20 };

/* Rank 0 sends to each of the others, which send it back. */
static void there_and_back(void)
{
    unsigned char *data = malloc(LONG), *back = calloc(LONG, 1);
    if (!data || !back) _exit(3);
    for (int i = 0; i < LONG; i++) data[i] = (unsigned char)((unsigned)i * 2654435761U >> 24);
    for (int k = 1; rank == 0 && k < ranks; k++) {
        need(tp_peers_send(G, k, data, LONG), "send");
        need(tp_peers_receive(G, k, back, LONG), "receive");
        need(memcmp(data, back, LONG) == 0, "what came back");
        memset(back, 0, LONG);
    }
    if (rank > 0)
        need(tp_peers_receive(G, 0, back, LONG) && tp_peers_send(G, 0, back, LONG), "echo");
    free(data);
    free(back);
}

static void compute(double seconds)
{
    const clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);
    while (clock() < end) continue;
}

/* Both ways at once through the transport itself: n bytes with each neighbour of a ring. If the
 * process computes for some seconds meanwhile, they must have come by then. */
static void ring(size_t n, double seconds)
{
    const tp_transport *t = tp_peers_transport(G);
    char *out = calloc(n + 1, 1), *in = calloc(n + 1, 1);
    if (!out || !in) _exit(3);
    if (n > 0) out[0] = out[n - 1] = (char)(rank + 1);
    const int left = (rank + ranks - 1) % ranks;
    void *request[2] = { t->receive(t->env, left, 16383, in, n),
                         t->send(t->env, (rank + 1) % ranks, 16383, out, n) };
    compute(seconds);
    for (int i = 0; i < 2; i++) {
        int done = 0;
        need(request[i] != NULL, "a message");
        while ((done = t->test(t->env, request[i])) == 0 || done == 2) {
            need(seconds == 0, "a message that nobody asked for meanwhile");
            sched_yield();
        }
        need(done == 1, "a message");
    }
    need(n == 0 || (in[0] == left + 1 && in[n - 1] == left + 1), "what came around");
    free(out);
    free(in);
}

static void exchanges(void)
{
    const tp_transport *t = tp_peers_transport(G);
    printf("rank %d of %d, local %d of %d, %s, host %s\n", rank, ranks, t->local_rank,
           t->local_ranks, t->name, t->host);
    gather();
    sum();
    broadcast();
    any();
    ring(0, 0);
    ring(1, 0);
    ring(LONG, 0);
    there_and_back();
    need(tp_peers_any(G, true), "the end");
    printf("well\n");
}

/* ---- cores ---- */

/* In one call: the launcher may mix the output of several processes. */
static void cores(void)
{
    char text[8 * CPU_SETSIZE] = "cores";
    size_t n = strlen(text);
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set)) n += (size_t)snprintf(text + n, sizeof text - n, " %zu", i);
    printf("%s\n", text);
}

/* ---- one that goes ---- */

static void vanish(int signal)
{
    tp_peers_during(G, "the test", 1);
    need(tp_peers_any(G, true), "the start");
    printf("pid %d\n", (int)getpid());
    fflush(stdout);
    if (rank == ranks - 1) raise(signal);
    while (tp_peers_any(G, true)) {
    }
    fprintf(stderr, "rank %d: %s\n", rank, tp_peers_why(G));
    _exit(1);
}

int main(int argc, char **argv)
{
    const char *task = argc > 1 ? argv[1] : "";
    const bool keeps = strcmp(task, "kept") == 0;
    G = tp_peers_open(&(tp_peers_opts){ .timeout = 2, .lost = lost, .keep_binding = keeps });
    rank = tp_peers_rank(G);
    ranks = tp_peers_count(G);
    if (G && !tp_peers_ok(G)) {
        fprintf(stderr, "peers_program: %s\n", tp_peers_why(G));
        return 1;
    }
    if (strcmp(task, "cores") == 0 || keeps) cores();
    if (!G) {
        printf("alone\n");
        return 0;
    }
    if (strcmp(task, "exchanges") == 0) exchanges();
    if (strcmp(task, "computes") == 0) ring(LONG, 1.5);
    if (strcmp(task, "stop") == 0) vanish(SIGSTOP);
    if (strcmp(task, "kill") == 0) vanish(SIGKILL);
    if (strcmp(task, "early") == 0 && rank == 0) raise(SIGSTOP);
    fflush(stdout);
    tp_peers_close(G);
    return 0;
}
