/* folder.h - a run's folder and its lock. */
#ifndef TP_FOLDER_H
#define TP_FOLDER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { TP_PATH = 4096 };

typedef struct tp_folder {
    char path[TP_PATH];
    char last[TP_PATH + 32], best[TP_PATH + 32], log[TP_PATH + 32], config[TP_PATH + 32];
    int lock;      /* file descriptor; -1: this process does not hold the lock */
    int folder;    /* file descriptor, locked too; -1: the file system cannot lock it */
    bool made;     /* the folder is new */
    bool no_locks; /* the file system has none: other processes may use it */
    char why[TP_PATH + 512];
} tp_folder;

/* No folder; valid for tp__folder_close before one is open. */
#define TP_NO_FOLDER ((tp_folder){ .lock = -1, .folder = -1 })

/* Sets the names of its files without touching the disk. False with the reason in why. */
bool tp__folder_name(tp_folder *R, const char *path);

/* Creates the folder and its parents where missing and locks it; the lock is released when the
 * process ends in any way. Of several processes doing so at once, one succeeds. False with the
 * reason in why. */
bool tp__folder_open(tp_folder *R, const char *path);
void tp__folder_close(tp_folder *R);

/* Removes a folder that this run created and left empty. Call before closing. */
void tp__folder_forget(const tp_folder *R);

/* Is the file certainly missing? False with errno set if the disk cannot tell, with errno 0 if it
 * exists. */
bool tp__missing(const char *path);

/* Has the folder been removed, moved, replaced or emptied since it was locked? */
bool tp__folder_vanished(const tp_folder *R);

/* Writes config.json and takes ownership of the object. False with the reason in why. */
bool tp__folder_config(tp_folder *R, json_t *config);

#endif
