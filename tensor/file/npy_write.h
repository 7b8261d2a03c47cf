/* npy_write.h - the file that a writer of NumPy's formats (tp_writer_numpy) fills. */
#ifndef TP_NPY_WRITE_H
#define TP_NPY_WRITE_H

#include "tensor/file/inner.h"

enum { TP_NPY_TEXT = 512 }; /* room for the text before the elements of any array */

typedef struct tp_npy_file tp_npy_file;

/* One array if the path ends in .npy, else an archive of them. NULL without memory. */
tp_npy_file *tp__npy_file_new(const char *path, int arrays);
void tp__npy_file_free(tp_npy_file *f);

/* Writes the arrays of a file one after the other: each begins, gets its elements in pieces, and
 * ends; then the file is finished. The name must stay valid. False with errno set. */
bool tp__npy_begin(tp_npy_file *f, int fd, const char *name, const tp_view *v);
bool tp__npy_put(tp_npy_file *f, int fd, tp_dtype dt, const void *data, size_t n);
bool tp__npy_end(tp_npy_file *f, int fd);
bool tp__npy_finish(tp_npy_file *f, int fd);

#endif
