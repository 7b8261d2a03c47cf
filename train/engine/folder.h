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
    int lock;   /* file descriptor; -1: none                             */
    int folder; /* file descriptor, locked too; -1: this file system cannot */
    bool made;  /* was not there before                                  */
    char why[TP_PATH + 512];
} tp_folder;

/* The names of its files, without touching it; false with the reason in why. */
bool tp__folder_name(tp_folder *R, const char *path);

/* Makes the folder with its parents if need be and locks it for this process; the lock ends with
 * the process, however it ends. False with the reason in why. */
bool tp__folder_open(tp_folder *R, const char *path);
void tp__folder_close(tp_folder *R);

/* Before closing: removes the folder if it was made for nothing. */
void tp__folder_forget(const tp_folder *R);

/* Is there no such file? One that the disk does not tell about may be there; then errno says why,
 * else it is 0. */
bool tp__missing(const char *path);

/* Has somebody removed, moved or replaced the folder, or emptied it, since it was locked? */
bool tp__folder_vanished(const tp_folder *R);

/* Writes config.json. Takes the object over. False with the reason in why. */
bool tp__folder_config(tp_folder *R, json_t *config);

#endif
