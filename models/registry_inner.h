/* registry_inner.h - parts of the table of models that have a file of their own. */
#ifndef TP_REGISTRY_INNER_H
#define TP_REGISTRY_INNER_H

#include <tapegrad/models.h>

extern const tp_model_info tp__vil_models[];
extern const int tp__vil_model_count;

#endif
