/* fixtures.h - finds and copies reference cases. They are looked for in $TAPEGRAD_FIXTURES, then in
 * ../shared/fixtures beside the source folder (not for an emulated GPU), then in the selection of
 * tests/fixtures. */
#ifndef SUPPORT_FIXTURES_H
#define SUPPORT_FIXTURES_H

#include <stddef.h>
#include <tapegrad/file.h>

/* Stores the first existing path in `path`; skips the test if there is none. */
void fixture_find(const char *name, char *path, size_t size);

/* Opens it. */
tp_file *fixture_open(const char *name);

/* Copies a case without the tensors whose names begin with a word in left_out. The metadata's
 * `key`, unless NULL, gets that value; NULL: it is left out. The copy may get more tensors before
 * it is committed, which closes both files. */
tp_writer *fixture_copy(tp_file *F, const char *to, const char *key, const char *value,
                        const char *left_out);
void fixture_copy_tensor(tp_file *F, tp_writer *W, const tp_file_tensor *t, const char *name);
void fixture_commit(tp_file *F, tp_writer *W);

#endif
