/* emulated_errors.cpp - names and texts of the errors that the emulation returns. */
#include "cuda_runtime_api.h"

const char *cudaGetErrorName(cudaError_t e)
{
    return e == cudaErrorLaunchFailure           ? "cudaErrorLaunchFailure"
           : e == cudaErrorMemoryAllocation      ? "cudaErrorMemoryAllocation"
           : e == cudaErrorInvalidConfiguration  ? "cudaErrorInvalidConfiguration"
           : e == cudaErrorMisalignedAddress     ? "cudaErrorMisalignedAddress"
           : e == cudaErrorIllegalAddress        ? "cudaErrorIllegalAddress"
           : e == cudaErrorInvalidValue          ? "cudaErrorInvalidValue"
           : e == cudaErrorInvalidResourceHandle ? "cudaErrorInvalidResourceHandle"
           : e == cudaErrorDevicesUnavailable    ? "cudaErrorDevicesUnavailable"
           : e == cudaErrorInsufficientDriver    ? "cudaErrorInsufficientDriver"
                                                 : "cudaError";
}

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorLaunchFailure          ? "unspecified launch failure"
           : e == cudaErrorMemoryAllocation     ? "out of memory"
           : e == cudaErrorInvalidConfiguration ? "invalid configuration argument"
           : e == cudaErrorMisalignedAddress    ? "misaligned address"
           : e == cudaErrorInvalidValue         ? "invalid argument"
                                                : "emulated error";
}
