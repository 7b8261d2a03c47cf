/* malloc.c - wraps malloc and free. Both must happen here: memory that a shared library allocates
 * and we free, or the reverse, makes the count wrong. */
#include "support/malloc.h"

#include <errno.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **p, size_t alignment, size_t size);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **p, size_t alignment, size_t size);
char *__wrap_strdup(const char *s);
void __wrap_free(void *p);

static atomic_size_t calls, first, last; /* calls since malloc_fail; first to last fail */
static atomic_int_least64_t live;

static bool refused(void)
{
    const size_t n = ++calls;
    if (first == 0 || n < first || n > last) return false;
    errno = ENOMEM;
    return true;
}

static void *counted(void *p)
{
    if (p) live++;
    return p;
}

void *__wrap_malloc(size_t size)
{
    return refused() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refused() ? NULL : counted(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t size)
{
    if (refused()) return NULL;
    void *q = __real_realloc(p, size);
    if (q && !p) live++;
    return q;
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return refused() ? NULL : counted(__real_aligned_alloc(alignment, size));
}

int __wrap_posix_memalign(void **p, size_t alignment, size_t size)
{
    if (refused()) return ENOMEM;
    const int error = __real_posix_memalign(p, alignment, size);
    if (!error) live++;
    return error;
}

char *__wrap_strdup(const char *s)
{
    const size_t size = strlen(s) + 1;
    char *copy = __wrap_malloc(size);
    if (copy) memcpy(copy, s, size);
    return copy;
}

void __wrap_free(void *p)
{
    if (p) live--;
    __real_free(p);
}

void malloc_fail(size_t n, size_t count)
{
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
    calls = 0;
    first = n;
    last = n + count - 1;
}

size_t malloc_heal(void)
{
    first = 0;
    return calls;
}

int64_t malloc_live(void)
{
    return live;
}
