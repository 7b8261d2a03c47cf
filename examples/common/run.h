/* run.h - a run's folder, its lock, and stopping on request. */
#ifndef RUN_H
#define RUN_H

#include <jansson.h>
#include <stdbool.h>

enum { RUN_PATH = 4096 };

typedef struct run_dir {
    char path[RUN_PATH];
    char last[RUN_PATH + 32], best[RUN_PATH + 32], log[RUN_PATH + 32], config[RUN_PATH + 32];
    int lock; /* file descriptor */
    char why[RUN_PATH + 512];
} run_dir;

/* Makes the folder with its parents if need be and locks it for this process; the lock ends with
 * the process, however it ends. False with the reason in why. */
bool run_open(run_dir *R, const char *path);
void run_close(run_dir *R);

/* Somebody removed, moved or replaced the folder since it was locked. */
bool run_vanished(const run_dir *R);

/* The folder with its parents, where they are not there yet. False with errno set. */
bool run_make_folders(const char *path);

/* Writes config.json beside, then renames it. Takes the object over. */
bool run_write_config(run_dir *R, json_t *config);

/* Makes a path (allocated, or NULL) absolute, so that the run can be resumed from another folder.
 */
void run_absolute(char **path);

/* From here on SIGINT, SIGTERM and SIGHUP only note that they came; a second one kills. */
void run_catch_signals(void);
int run_stop_signal(void); /* the signal that came, or 0 */

#endif
