/* host_device.h - TP_HD marks header functions that run on the CPU and in CUDA kernels. */
#ifndef TP_HOST_DEVICE_H
#define TP_HOST_DEVICE_H

#include <stdint.h>

#ifdef __CUDACC__
#define TP_HD __host__ __device__
#else
#define TP_HD
#endif

#endif
