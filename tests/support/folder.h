/* folder.h - a separate folder for each test that writes files. */
#ifndef TP_SUPPORT_FOLDER_H
#define TP_SUPPORT_FOLDER_H

extern char folder[512];

void make_folder(void);
void remove_folder(void); /* and its contents */
int files_in_folder(void);

/* The path of a file in the folder; valid until the fourth call after this one. */
const char *in_folder(const char *name);

#endif
