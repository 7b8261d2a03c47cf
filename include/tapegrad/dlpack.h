/* dlpack.h - tensors that other libraries of the process read, and theirs that ops read, without
 * copies, in main memory and on GPUs: DLPack 1.x (https://dmlc.github.io/dlpack), which NumPy and
 * PyTorch speak among others. Not part of tapegrad.h.
 *
 * The structs are those of the specification, under names of our own; a tp_dlpack * is its
 * DLManagedTensorVersioned *, the content of a Python capsule "dltensor_versioned" ("dltensor" is
 * that of versions before 1.0). Whoever holds one calls its deleter exactly once, which frees
 * it. */
#ifndef TAPEGRAD_DLPACK_H
#define TAPEGRAD_DLPACK_H

#include <tapegrad/tape.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_DL_MAJOR = 1 }; /* the binary interface; minor versions add to it */

/* tp_dl_device.type. tapegrad's "cpu" takes the first and the third, "cuda:N" the others with
 * id N. */
enum { TP_DL_CPU = 1, TP_DL_CUDA = 2, TP_DL_CUDA_HOST = 3, TP_DL_CUDA_MANAGED = 13 };

/* tp_dl_dtype.code */
enum { TP_DL_INT, TP_DL_UINT, TP_DL_FLOAT, TP_DL_BFLOAT = 4, TP_DL_BOOL = 6 };

/* tp_dlpack.flags: the memory must not be written; its producer made a copy. */
enum { TP_DL_READ_ONLY = 1, TP_DL_COPIED = 2 };

typedef struct tp_dl_device {
    int32_t type, id;
} tp_dl_device;

typedef struct tp_dl_dtype {
    uint8_t code, bits;
    uint16_t lanes; /* 1, except for vectors */
} tp_dl_dtype;

typedef struct tp_dl_tensor {
    void *data; /* the first element is byte_offset bytes behind it */
    tp_dl_device device;
    int32_t ndim;
    tp_dl_dtype dtype;
    int64_t *shape;   /* [ndim] */
    int64_t *strides; /* [ndim], in elements; NULL: row-major without gaps */
    uint64_t byte_offset;
} tp_dl_tensor;

typedef struct tp_dlpack {
    struct {
        uint32_t major, minor;
    } version;
    void *context; /* the producer's */
    void (*deleter)(struct tp_dlpack *self);
    uint64_t flags;
    tp_dl_tensor tensor;
} tp_dlpack;

/* The memory of x, which may be a result, a parameter or a gradient, for another library:
 * row-major, with the dtype of x, marked read-only. The result belongs to the caller or whom it is
 * passed to. Until its deleter is called, it keeps the memory, whatever becomes of x: tp_reset, the
 * end of the scope, tp_tape_free, tp_params_free, even tp_device_close, after which the device's
 * memory is freed by the last deleter. The deleter may be called on any thread, at any time.
 *
 * The values of a result stay as they are. Those of a parameter change with each tp_step, those of
 * its gradient with each backward pass, those of a carried tensor with tp_feed and tp_write_rows,
 * those of a recorded step (capture.h) with each run.
 *
 * Synchronises, so that the values are complete for any stream. On CUDA, what the other library has
 * queued on x must have run when it calls the deleter, since the memory may be used again at once.
 * NULL with T failed: T had failed, x is not alive, the device is dry, or a step is being
 * recorded. */
TP_API tp_dlpack *tp_to_dlpack(tp_tape *T, tp_tensor x);

/* A constant tensor whose memory is that of m; tp_input_dlpack: an input that gets a gradient, for
 * floating dtypes. m is taken over in any case: if T fails, its deleter is called before the
 * function returns. Otherwise it is called when the last tensor and record that need the memory are
 * gone, on the thread that drops it: in tp_reset, tp_leave, tp_backward or tp_tape_free of T, or,
 * if the tensor was exported again, where that export is deleted. The deleter must not use T.
 *
 * Until then the producer must not change the values, which records of T may have saved. tapegrad
 * never writes them; tp_carry copies them.
 *
 * T's device must be that of the memory, which must be row-major without gaps (strides of axes of
 * size 1 do not matter) and aligned to its elements; nothing is copied or converted. bool becomes
 * u8. T fails, with advice, on other strides, dtypes that tapegrad does not have (f16 among them),
 * another device, another major version, a dry device, and while a step is recorded.
 *
 * On CUDA, what the producer has queued must have run before the call: synchronise its stream. The
 * deleter waits for T's device first; do not drop the tensor while another tape records a step. */
TP_API tp_tensor tp_from_dlpack(tp_tape *T, tp_dlpack *m);
TP_API tp_tensor tp_input_dlpack(tp_tape *T, tp_dlpack *m);

#ifndef TP_NO_SITE
#include <tapegrad/sites/dlpack.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
