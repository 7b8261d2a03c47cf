/* emulated_graph.cpp - recorded streams: the work between begin and end of a recording is kept as
 * closures and run by each launch of the graph, in order. */
#include <vector>

#include "cuda_runtime.h"

struct CUgraph_st {
    std::vector<std::function<void()>> work;
};

static CUgraph_st *recording; /* the graph being made, or none */

void emulated_queue(std::function<void()> work)
{
    if (recording)
        recording->work.push_back(std::move(work));
    else
        work();
}

int emulated_record(void (*work)(const void *args), const void *args, size_t bytes)
{
    if (!recording) return 0;
    const char *from = static_cast<const char *>(args);
    const std::vector<char> kept(from, from + bytes);
    recording->work.push_back([=] { work(kept.data()); });
    return 1;
}

bool emulated_recording()
{
    return recording != nullptr;
}

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    (void)s;
    if (recording || mode != cudaStreamCaptureModeRelaxed) return cudaErrorInvalidValue;
    recording = new CUgraph_st;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    (void)s;
    *graph = recording;
    recording = nullptr;
    return *graph ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    *exec = new CUgraph_st(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    (void)s;
    for (const auto &work : exec->work) work();
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}
}
