/* launch.c - finds the processes that a launcher started together with this one.
 *
 * The launcher shows in the environment. SLURM_NTASKS and SLURM_PROCID prove nothing, because a
 * batch script that runs one process has them, too. A launcher of another MPI than the plugin's
 * starts processes that each believe they are alone, without any error: so the numbers of processes
 * are compared. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/transport.h>
#include <unistd.h>

#include "train/peers/inner.h"

enum { PATH = 4096 };

/* ---- the launcher ---- */

typedef struct launcher {
    const char *mpi, *plugin, *package; /* mpi NULL: one that gives the processes no way to meet */
    const char *variable;               /* that it sets */
    int rank, ranks;                    /* ranks 0: unknown */
} launcher;

/* A variable's number; 0 if there is none. */
static int number(const char *variable)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : 0;
}

static launcher openmpi(const char *variable, const char *rank, const char *ranks)
{
    return (launcher){ .mpi = "Open MPI",
                       .plugin = "libtapegrad_openmpi.so",
                       .package = "libopenmpi-dev",
                       .variable = variable,
                       .rank = number(rank),
                       .ranks = number(ranks) };
}

static launcher find_launcher(void)
{
    if (getenv("OMPI_COMM_WORLD_SIZE"))
        return openmpi("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    if (getenv("PMIX_RANK")) return openmpi("PMIX_RANK", "PMIX_RANK", "SLURM_STEP_NUM_TASKS");
    if (getenv("PMI_SIZE"))
        return (launcher){ .mpi = "MPICH",
                           .plugin = "libtapegrad_mpich.so",
                           .package = "libmpich-dev",
                           .variable = "PMI_SIZE",
                           .rank = number("PMI_RANK"),
                           .ranks = number("PMI_SIZE") };
    if (number("SLURM_STEP_NUM_TASKS") > 1)
        return (launcher){ .rank = number("SLURM_PROCID"),
                           .ranks = number("SLURM_STEP_NUM_TASKS") };
    return (launcher){ .ranks = 1 };
}

/* Open MPI says that it bound a process, and by which policy only if somebody chose one. */
static bool was_bound_by_default(void)
{
    return number("OMPI_MCA_orte_bound_at_launch") && !getenv("OMPI_MCA_hwloc_base_binding_policy");
}

/* ---- the plugin ---- */

/* Opens the plugin in a folder relative to that of a file. True if it is there, even if it cannot
 * be loaded. */
static bool open_beside(const char *file, const char *folder, const char *plugin, void **library)
{
    char path[2 * PATH];
    const char *slash = strrchr(file, '/');
    if (!slash) return false;
    snprintf(path, sizeof path, "%.*s/%s%s", (int)(slash - file), file, folder, plugin);
    if (access(path, F_OK) != 0) return false;
    *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    return true;
}

/* Opens it beside this library or the program, or where the system looks. NULL: see dlerror. */
static void *open_plugin(const char *plugin)
{
    static const char *const folders[] = { "", "../lib/", "../" TP_LIBDIR "/" };
    static const char here_it_is = 0;
    char file[2][PATH] = { "", "" };
    void *library = NULL;
    Dl_info here;
    if (dladdr(&here_it_is, &here) && here.dli_fname) snprintf(file[0], PATH, "%s", here.dli_fname);
    const ssize_t n = readlink("/proc/self/exe", file[1], PATH - 1);
    file[1][n > 0 ? n : 0] = '\0';
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < sizeof folders / sizeof *folders; k++)
            if (open_beside(file[i], folders[k], plugin, &library)) return library;
    return dlopen(plugin, RTLD_NOW | RTLD_GLOBAL);
}

/* ---- opening ---- */

static tp_peers *refused(const launcher *l, const char *fmt, ...) TP_PRINTF(2, 3);
static tp_peers *refused(const launcher *l, const char *fmt, ...)
{
    char why[2000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    tp_peers *G = tp__peers_blank(&(tp_transport){ .name = l->mpi ? l->mpi : "Slurm",
                                                   .host = "",
                                                   .rank = l->rank,
                                                   .ranks = l->ranks > 0 ? l->ranks : 1,
                                                   .local_ranks = 1 },
                                  NULL);
    tp__peers_fail(G, "%s", why);
    return G;
}

static tp_peers *without_plugin(const launcher *l)
{
    const char *why = dlerror();
    return refused(l,
                   "this is one of several processes under the launcher of %s, but %s cannot be "
                   "loaded: %s; install %s and build tapegrad again, or compile mpi.c for this MPI "
                   "as tapegrad/transport.h says",
                   l->mpi, l->plugin, why ? why : "it lacks tp_transport_open", l->package);
}

/* Does MPI count the processes that the launcher started? */
static bool agree(const launcher *l, const tp_transport *t)
{
    return t->rank == l->rank && (l->ranks <= 0 || t->ranks == l->ranks);
}

static tp_peers *other_mpi(const launcher *l, const tp_transport *t)
{
    tp_peers *G = refused(l,
                          "the launcher started this process as rank %d of %d, but %s in %s takes "
                          "it for rank %d of %d: start the program with the mpirun of %s, or "
                          "compile mpi.c with the mpicc of this launcher",
                          l->rank, l->ranks, t->name, l->plugin, t->rank, t->ranks, t->name);
    if (t->ranks == 1) t->close(t->env); /* others might not close */
    return G;
}

static tp_peers *join(const launcher *l, const tp_peers_opts *o)
{
    const tp_transport *(*open)(char *, size_t) = NULL;
    char why[1000];
    void *library = open_plugin(l->plugin);
    void *function = library ? dlsym(library, "tp_transport_open") : NULL;
    if (!function) return without_plugin(l);
    memcpy(&open, &function, sizeof open);
    const tp_transport *t = open(why, sizeof why);
    if (!t) return refused(l, "%s: %s", l->mpi, why);
    if (!agree(l, t)) return other_mpi(l, t);
    if (!o || !o->keep_binding)
        tp__peers_divide_cores(t->local_rank, t->local_ranks, l->variable, was_bound_by_default());
    return tp_peers_new(t, o);
}

bool tp_peers_launched(int *rank)
{
    const launcher l = find_launcher();
    if (rank) *rank = l.rank;
    return l.ranks > 1 || l.rank > 0;
}

tp_peers *tp_peers_open(const tp_peers_opts *o)
{
    const launcher l = find_launcher();
    if (!l.mpi && l.ranks > 1)
        return refused(&l,
                       "srun started %d processes without a way to meet: give it --mpi=pmix for "
                       "Open MPI or --mpi=pmi2 for MPICH, or use mpirun",
                       l.ranks);
    if (l.ranks != 1) return join(&l, o);
    if (l.mpi && (!o || !o->keep_binding))
        tp__peers_divide_cores(0, 1, l.variable, was_bound_by_default());
    return NULL;
}
