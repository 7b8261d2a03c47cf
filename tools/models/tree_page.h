/* tree_page.h - prints a tree of layers as a table, and numbers as its columns have them. */
#ifndef TREE_PAGE_H
#define TREE_PAGE_H

#include "model_tree.h"

/* Prints the title and `depth` levels below the model; fold: one line for equal neighbours. False after a message if
 * memory is out. */
bool tree_page_print(const model_tree *t, const char *title, int depth, bool fold);

/* "44,294,448" and "110.9 G", in text, which is returned. */
const char *grouped_text(int64_t n, char *text, size_t size);
const char *scaled_text(double x, char *text, size_t size);

#endif
