/* support_fixtures.h - finds reference cases: in $TAPEGRAD_FIXTURES, in ../shared/fixtures beside
 * the source folder (not for an emulated GPU), and last in tests/fixtures, the selection that the
 * project keeps. */
#ifndef SUPPORT_FIXTURES_H
#define SUPPORT_FIXTURES_H

#include <stddef.h>

/* The first path/name that exists there, in path; the test is skipped if there is none. */
void fixture_find(const char *name, char *path, size_t size);

#endif
