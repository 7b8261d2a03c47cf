/* fixtures.h - finds and copies reference cases. It searches $TAPEGRAD_FIXTURES, ../shared/fixtures
 * beside the source folder (not for an emulated GPU), and the selection in tests/fixtures. */
#ifndef SUPPORT_FIXTURES_H
#define SUPPORT_FIXTURES_H

#include <stddef.h>
#include <tapegrad/file.h>

/* Stores the first existing path in `path`; skips the test if none exists. */
void fixture_find(const char *name, char *path, size_t size);

/* Opens it. */
tp_file *fixture_open(const char *name);

/* Copies a case without the tensors whose names begin with a word in left_out. Unless NULL, the
 * metadata's `key` is set to `value`, or removed if that is NULL. Tensors may be added before the
 * commit, which closes both files. */
tp_writer *fixture_copy(tp_file *F, const char *to, const char *key, const char *value,
                        const char *left_out);
void fixture_copy_tensor(tp_file *F, tp_writer *W, const tp_file_tensor *t, const char *name);
void fixture_commit(tp_file *F, tp_writer *W);

#endif
