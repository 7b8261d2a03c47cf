/* emulated_graph.cpp - streams and graphs: queued work is kept as closures and runs when the host
 * waits for it, as late as a GPU may run it. A host that does not wait sees the old contents. Each
 * launch of a graph runs the work queued during its recording, in order. */
#include <deque>
#include <vector>

#include "counts.h"
#include "cuda_runtime.h"
#include "emulation.h"

struct CUgraph_st {
    std::vector<std::function<void()>> work;
    struct Launch {
        const void *kernel;
        size_t shared;
    };
    std::vector<Launch> launches;
};

static CUgraph_st *recording; /* the graph being recorded, or none */
static cudaStream_t recorded; /* its stream */

/* Each stream has its own. */
static struct {
    std::deque<std::function<void()>> work;
    unsigned long long done; /* all earlier places are done */
} queues[EMULATION_STREAMS];

void emulated_queue(cudaStream_t s, std::function<void()> work)
{
    if (emulation.fault) return; /* after a fault a GPU drops further work */
    if (emulated_recording(s))
        recording->work.push_back(std::move(work));
    else
        queues[s->line].work.push_back(std::move(work));
}

void emulated_queue_copied(cudaStream_t s, void (*work)(const void *args), const void *args,
                           size_t bytes)
{
    if (counts_product(args)) return; /* nothing else is queued in this way in a step */
    const char *from = static_cast<const char *>(args);
    const std::vector<char> kept(from, from + bytes);
    emulated_queue(s, [=] { work(kept.data()); });
}

unsigned long long emulated_place(int queue)
{
    return queues[queue].done + queues[queue].work.size();
}

bool emulated_passed(int queue, unsigned long long place)
{
    return queues[queue].done >= place;
}

/* After a fault, queued work is dropped. */
void emulated_finish(int queue, unsigned long long place)
{
    auto &q = queues[queue];
    emulated_batch(1);
    while (q.done < place && !q.work.empty()) {
        const std::function<void()> work = std::move(q.work.front());
        q.work.pop_front();
        q.done++;
        if (!emulation.fault) work();
    }
    emulated_batch(-1);
}

bool emulated_recording(cudaStream_t s)
{
    return recording && recorded == s;
}

void emulated_note_launch(const void *kernel, size_t shared)
{
    recording->launches.push_back({ kernel, shared });
}

/* Consumes a setting for one call. */
static cudaError_t once(cudaError_t *setting)
{
    const cudaError_t e = *setting;
    *setting = cudaSuccess;
    return e;
}

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    if (emulated_current(s)) return emulated_current(s);
    if (recording || mode != cudaStreamCaptureModeRelaxed) return cudaErrorInvalidValue;
    recording = new CUgraph_st;
    recorded = s;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    if (emulated_current(s)) return emulated_current(s);
    const cudaError_t e = once(&emulation.end_error);
    *graph = e ? nullptr : recording;
    if (e) delete recording;
    recording = nullptr;
    return e || *graph ? e : cudaErrorInvalidValue;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    const cudaError_t e = once(&emulation.make_error);
    (void)flags;
    *exec = e ? nullptr : new CUgraph_st(*graph);
    return e;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    if (emulated_current(s)) return emulated_current(s);
    const cudaError_t e = once(&emulation.start_error);
    if (e) return e;
    counts_note(COUNT_LAUNCH, "", 1);
    for (const CUgraph_st::Launch &l : exec->launches) {
        const size_t asked = emulated_asked(l.kernel, s);
        if (asked && l.shared > asked) return cudaErrorInvalidValue;
    }
    emulated_queue(s, [=] { /* the graph must still exist when this runs */
                            for (const auto &work : exec->work)
                                if (!emulation.fault) work();
    });
    return emulation.fault;
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
