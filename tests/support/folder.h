/* folder.h - a separate folder for each test that writes files. */
#ifndef TP_SUPPORT_FOLDER_H
#define TP_SUPPORT_FOLDER_H

#include <stddef.h>

extern char folder[512];

void make_folder(void);
void remove_folder(void); /* and its contents */
int files_in_folder(void);

/* The path of a file in the folder; valid until the fourth call after this one. */
const char *in_folder(const char *name);

/* Write a file of that name in the folder, and return its path. */
const char *write_in_folder(const char *name, const void *bytes, size_t n);
const char *write_text(const char *name, const char *text);

#endif
