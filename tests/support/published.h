/* published.h - a model and a stand-in for its publisher's checkpoint. */
#ifndef TP_SUPPORT_PUBLISHED_H
#define TP_SUPPORT_PUBLISHED_H

#include <tapegrad/model.h>

/* Begins w.safetensors in the test's folder (support/folder.h). */
tp_writer *published_file(void);

/* Parameters with the model's initial values, and the model itself; the caller frees both. */
tp_params *published_params(const tp_model_cfg *cfg, tp_device *D, tp_net **N);

#endif
