/* A stand-in for libcuda.so.1: the functions that pipeline_bench/planted/cuda.py calls.
 *
 * A stream does one thing after the other, each for as long as a kernel is asked to run or a copy takes, by
 * CLOCK_MONOTONIC; nothing is computed. A call that copies from pageable memory comes back when the copy is over. What
 * the GPU does is written to the file that CUDA_STUB_TIMELINE names, which the stub of NVML computes its figures of. It
 * proves the plumbing, and nothing about a GPU.
 *
 *   CUDA_STUB_GB_PER_S       what a copy moves (10)
 *   CUDA_STUB_ONE_ENGINE     nothing overlaps, whatever its stream
 *   CUDA_STUB_LAUNCH_MS      how long the call takes that launches a kernel (0)
 *   CUDA_STUB_LAUNCHES       how many kernels can be launched; the next one is CUDA_ERROR_LAUNCH_FAILED
 *   CUDA_STUB_REFUSES, CUDA_STUB_NO_COMPILER   there is no GPU, or no compiler
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long u64;
typedef struct { double free_ns; } Stream;
typedef struct { double at_ns; } Event;
enum { OK = 0, INVALID_VALUE = 1, SMS = 8 };
enum { MOST_PINNED = 64 };
static char spin, tensor;
static const void *pinned[MOST_PINNED];
static int pinned_count;
static double any_free_ns;

static double number(const char *name, double otherwise) {
    const char *text = getenv(name);
    return text ? atof(text) : otherwise;
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static void occupy(Stream *stream, double ns, double sm_share, double tensor_share) {
    const char *path = getenv("CUDA_STUB_TIMELINE");
    FILE *file = path ? fopen(path, "a") : NULL;
    double start = now_ns();
    if (stream->free_ns > start) start = stream->free_ns;
    if (getenv("CUDA_STUB_ONE_ENGINE") && any_free_ns > start) start = any_free_ns;
    any_free_ns = stream->free_ns = start + ns;
    if (file) {
        fprintf(file, "%.0f %.0f %f %f\n", start, stream->free_ns, sm_share, tensor_share);
        fclose(file);
    }
}

int cuInit(unsigned flags) { return getenv("CUDA_STUB_REFUSES") ? 100 : (int)flags; }
int cuGetErrorName(int code, const char **name) {
    *name = code == 100 ? "CUDA_ERROR_NO_DEVICE"
          : code == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : code == 221 ? "CUDA_ERROR_JIT_COMPILER_NOT_FOUND" : "CUDA_ERROR_OF_THE_STUB";
    return OK;
}
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return OK; }
int cuDeviceGetPCIBusId(char *text, int length, int device) {
    snprintf(text, (size_t)length, "0000:%02x:00.0", 1 + device);
    return OK;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 16 ? SMS : attribute == 36 ? 1000000 : attribute == 37 ? 1024 : 0;
    return OK;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = &spin; return OK; }
int cuCtxSetCurrent(void *context) { return context ? OK : INVALID_VALUE; }
int cuModuleLoadData(void **module, const char *image) {
    if (getenv("CUDA_STUB_NO_COMPILER")) return 221;
    if (strncmp(image, ".version", 8)) return INVALID_VALUE;
    *module = &spin;
    return OK;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module;
    *function = strcmp(name, "tensor") ? &spin : &tensor;
    return OK;
}
int cuStreamCreate(Stream **stream, unsigned flags) {
    (void)flags;
    *stream = calloc(1, sizeof **stream);
    return OK;
}
int cuEventCreate(Event **event, unsigned flags) {
    (void)flags;
    *event = calloc(1, sizeof **event);
    return OK;
}
int cuEventRecord(Event *event, Stream *stream) {
    event->at_ns = now_ns();
    if (stream->free_ns > event->at_ns) event->at_ns = stream->free_ns;
    return OK;
}
static int wait_until(double at_ns) {
    double left = at_ns - now_ns();
    if (left > 0) usleep((unsigned)(left / 1000) + 1);
    return OK;
}
int cuEventSynchronize(Event *event) { return wait_until(event->at_ns); }
int cuEventElapsedTime(float *ms, Event *first, Event *second) {
    *ms = (float)((second->at_ns - first->at_ns) / 1e6);
    return OK;
}
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, Stream *stream, void **arguments, void **extra) {
    (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
    static int launches;
    if (++launches > number("CUDA_STUB_LAUNCHES", 1e9)) return 719;
    wait_until(now_ns() + 1e6 * number("CUDA_STUB_LAUNCH_MS", 0));
    double share = (double)(x * y * z) / SMS;
    if (share > 1) share = 1;
    occupy(stream, (double)*(u64 *)arguments[0], share, function == &tensor ? 0.5 * share : 0);
    return OK;
}
int cuMemAlloc_v2(u64 *at, size_t size) { *at = size; return OK; }
int cuMemFree_v2(u64 at) { return at ? OK : INVALID_VALUE; }
int cuMemAllocHost_v2(void **at, size_t size) {
    *at = malloc(size);
    if (*at && pinned_count < MOST_PINNED) pinned[pinned_count++] = *at;
    return *at ? OK : INVALID_VALUE;
}
static void copy(size_t size, Stream *stream) { occupy(stream, (double)size / number("CUDA_STUB_GB_PER_S", 10), 0, 0); }
int cuMemcpyHtoDAsync_v2(u64 to, const void *host, size_t size, Stream *stream) {
    if (!to || !host) return INVALID_VALUE;
    copy(size, stream);
    for (int i = 0; i < pinned_count; i++)
        if (pinned[i] == host) return OK;
    return wait_until(stream->free_ns);
}
int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t size, Stream *stream) {
    if (!to || !from) return INVALID_VALUE;
    copy(size, stream);
    return OK;
}
