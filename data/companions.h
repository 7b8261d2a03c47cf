/* companions.h - files and folders that operating systems and tools leave next to data. */
#ifndef TP_COMPANIONS_H
#define TP_COMPANIONS_H

#include <stdbool.h>

/* Is the path of a file or folder, below the folder of a set or in an archive, that of a companion: is one of its
 * components the work of a system or a tool rather than data? Hidden names (`._NAME`, .DS_Store, .ipynb_checkpoints),
 * __MACOSX, Thumbs.db, desktop.ini, @eaDir, lost+found and their like are. A companion is no example, no class and no
 * error: readers pass over it in silence. "." and ".." are components of any path. Do not ask about the part of a
 * path that a user has chosen: data may lie in a hidden folder. */
bool tp__companion(const char *path);

#endif
