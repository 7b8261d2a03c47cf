/* npy.h - shared by the reader and the writer of NumPy's files. */
#ifndef TP_NPY_H
#define TP_NPY_H

#define TP_NPY_NAME "arr_0" /* the array of a .npy, as numpy.savez names one without a name */

/* NumPy's name, without a byte order, of a dtype of ours ("F32"); NULL: it has none. */
const char *tp__npy_descr(const char *stored);

#endif
