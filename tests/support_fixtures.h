/* support_fixtures.h - finds reference cases: in $TAPEGRAD_FIXTURES, then in ../shared/fixtures
 * beside the source folder (not for an emulated GPU), then in the selection of tests/fixtures. */
#ifndef SUPPORT_FIXTURES_H
#define SUPPORT_FIXTURES_H

#include <stddef.h>
#include <tapegrad/file.h>

/* Stores the first existing path in `path`; skips the test if there is none. */
void fixture_find(const char *name, char *path, size_t size);

/* Opens it. */
tp_file *fixture_open(const char *name);

#endif
