/* blas_library.c - loads cuBLAS and cuBLASLt at run time. */
#include "cuda/device/blas_library.h"

#include <stdio.h>
#include <string.h>

#include "tensor/error.h"

void *tp__cuda_library(const char *title, const char *stem, const char *const *names,
                       void *functions, char *text, size_t size)
{
    static const char *const versions[] = { ".13", ".12", "" };
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof versions / sizeof *versions; i++) {
        char file[64];
        snprintf(file, sizeof file, "%s.so%s", stem, versions[i]);
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    }
    if (!library) {
        tp__append(text, size,
                   "%s was not found (%s.so.13, .so.12, .so); install the CUDA libraries, or put "
                   "their folder into LD_LIBRARY_PATH",
                   title, stem);
        return NULL;
    }
    for (size_t i = 0; names[i]; i++) {
        void *symbol = dlsym(library, names[i]);
        if (!symbol) {
            tp__append(text, size, "the %s library found here has no %s", title, names[i]);
            dlclose(library);
            return NULL;
        }
        memcpy((char *)functions + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return library;
}
