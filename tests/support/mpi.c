/* mpi.c - starts programs in several processes with the launchers of both MPIs. */
#include "support/mpi.h"

#include <stdio.h>
#include <unistd.h>

#include "support/program.h"

/* Tests run as root in containers, on machines with fewer cores than ranks. */
static const struct {
    const char *name, *launcher, *flags, *plugin;
} kinds[MPI_KINDS] = {
    [OPEN_MPI] = { "Open MPI", "mpirun.openmpi", "--allow-run-as-root --oversubscribe",
                   "libtapegrad_openmpi.so" },
    [MPICH] = { "MPICH", "mpirun.mpich", "", "libtapegrad_mpich.so" },
};

const char *mpi_name(mpi_kind k)
{
    return kinds[k].name;
}

bool has_mpi(mpi_kind k)
{
    char text[4500];
    snprintf(text, sizeof text, "%s/../lib/%s", TP_BIN_DIR, kinds[k].plugin);
    if (access(text, F_OK) != 0) return false;
    snprintf(text, sizeof text, "command -v %s >/dev/null", kinds[k].launcher);
    return shell(text);
}

const char *mpi_command(mpi_kind k, int ranks)
{
    static char text[200];
    snprintf(text, sizeof text, "timeout 100 %s %s -n %d", kinds[k].launcher, kinds[k].flags,
             ranks);
    return text;
}
