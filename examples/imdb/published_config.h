/* published_config.h - what the shapes in a published file do not tell: the config.json beside it. */
#ifndef PUBLISHED_CONFIG_H
#define PUBLISHED_CONFIG_H

#include <tapegrad/file.h>
#include <tapegrad/roberta.h>

#include "text_data.h"

/* Sets heads and Longformer's window from the config.json in the folder of F, as the package transformers writes it.
 * What it lacks stays as it is, and so does everything if there is no such file or it is another model's. False with
 * the reason in why if it cannot be read, contradicts c, or asks for another activation than GELU. */
bool published_config(tp_roberta_cfg *c, const tp_file *F, char *why, size_t size);

/* The names of the classes of the model c in F: those in the metadata of a checkpoint of this program; those in
 * "id2label" of the config.json in the folder of another file. None if there are no such metadata or file, if it is
 * another model's, or if its names are not as many different ones as c has classes, or are the placeholders "LABEL_0",
 * "LABEL_1", ... Free l in either case. False with the reason in why if they cannot be read, or out of memory. */
bool model_classes(class_list *l, const tp_roberta_cfg *c, tp_file *F, char *why, size_t size);

#endif
