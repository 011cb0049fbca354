/* A stand-in for libcuda.so.1: the functions that pipeline_bench/planted/cuda.py calls.
 *
 * A stream does one thing after the other, each for as long as a kernel is asked to run or a copy takes at 10 GB/s, by
 * CLOCK_MONOTONIC; nothing is computed. What the GPU does is written to the file that CUDA_STUB_TIMELINE names, which
 * the stub of NVML computes its figures of. It proves the plumbing, and nothing about a GPU.
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
static const double BYTES_PER_NS = 10;
static char spin, tensor;

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
    stream->free_ns = start + ns;
    if (file) {
        fprintf(file, "%.0f %.0f %f %f\n", start, stream->free_ns, sm_share, tensor_share);
        fclose(file);
    }
}

int cuInit(unsigned flags) { return getenv("CUDA_STUB_REFUSES") ? 100 : (int)flags; }
int cuGetErrorName(int code, const char **name) {
    *name = code == 100 ? "CUDA_ERROR_NO_DEVICE"
          : code == 221 ? "CUDA_ERROR_JIT_COMPILER_NOT_FOUND" : "CUDA_ERROR_OF_THE_STUB";
    return OK;
}
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return OK; }
int cuDeviceGetPCIBusId(char *text, int length, int device) {
    (void)device;
    snprintf(text, (size_t)length, "0000:01:00.0");
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
int cuEventSynchronize(Event *event) {
    double left = event->at_ns - now_ns();
    if (left > 0) usleep((unsigned)(left / 1000) + 1);
    return OK;
}
int cuEventElapsedTime(float *ms, Event *first, Event *second) {
    *ms = (float)((second->at_ns - first->at_ns) / 1e6);
    return OK;
}
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, Stream *stream, void **arguments, void **extra) {
    (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
    double share = (double)(x * y * z) / SMS;
    if (share > 1) share = 1;
    occupy(stream, (double)*(u64 *)arguments[0], share, function == &tensor ? 0.5 * share : 0);
    return OK;
}
int cuMemAlloc_v2(u64 *at, size_t size) { *at = size; return OK; }
int cuMemFree_v2(u64 at) { return at ? OK : INVALID_VALUE; }
int cuMemAllocHost_v2(void **at, size_t size) { *at = malloc(size); return *at ? OK : INVALID_VALUE; }
int cuMemcpyHtoDAsync_v2(u64 to, const void *host, size_t size, Stream *stream) {
    if (!to || !host) return INVALID_VALUE;
    occupy(stream, (double)size / BYTES_PER_NS, 0, 0);
    return OK;
}
int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t size, Stream *stream) {
    if (!to || !from) return INVALID_VALUE;
    occupy(stream, (double)size / BYTES_PER_NS, 0, 0);
    return OK;
}
