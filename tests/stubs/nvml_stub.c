/* A stand-in for libnvidia-ml.so.1: the functions that pipeline_bench/samplers/nvml_reader.py reaches through pynvml.
 *
 * It proves the plumbing and the error paths, and nothing about what the figures mean on a GPU.
 *
 * Environment, read at each call, so that a test can change it between two polls:
 *   NVML_STUB_MODE               ok (default)
 *                                absent_driver, no_permission, mismatch   refused by nvmlInit
 *                                no_devices          the driver lists none
 *                                no_samples          the buffer of utilization samples stays empty (NOT_FOUND)
 *                                samples_unsupported nvmlDeviceGetSamples is NOT_SUPPORTED
 *                                refused_metrics     every metric of a device is NO_PERMISSION
 *                                refused_power       the power usage is NO_PERMISSION
 *                                refused_processes   the list of processes is NO_PERMISSION
 *                                mig                 MIG is enabled: utilization is NOT_SUPPORTED, and GPM is had of the
 *                                                    instances 7 and 9, whose figures are halved on the second
 *                                lost_after_N        after N temperature readings the GPU is lost (the sampler takes
 *                                                    one at the end of each poll)
 *                                uninitialized       every metric of a device is UNINITIALIZED
 *                                hang_in_init, crash_in_init   nvmlInit never returns, or ends in SIGSEGV
 *                                hang_after_N, crash_after_N, abort_after_N   so does every metric of a device after N
 *                                                    temperature readings; SIGABRT for the last
 *                                all_ones            every metric but the processes is all ones: not available
 *                                negative            every metric but the processes is -40, as an unsigned number
 *   NVML_STUB_DEVICES            how many GPUs there are (1); GPU i has PCI id 00000000:0(i+1):00.0 and UUID GPU-stub-i
 *   NVML_STUB_UTILIZATION        percent (37)
 *   NVML_STUB_UTILIZATION_FILE   a file that holds the percent; wins over the former
 *   NVML_STUB_SAMPLES            the buffer as "stamp_us:percent,stamp_us:percent"; "" for none. Unset: one sample
 *                                every sixth of a second of the wall clock, the last 100 of them
 *   NVML_STUB_THROTTLE_REASONS   the bit mask of nvmlClocksEventReasons (0)
 *   NVML_STUB_PROCESSES          how many processes have the GPU open for computing (1)
 *   NVML_STUB_NEIGHBOUR          a timeline of one more, which has the GPU open while it was busy in the last 0.1 s
 *   NVML_STUB_DELAY_MS           how long a temperature reading takes (0)
 *   NVML_STUB_SAMPLE_TYPE        the nvmlValueType_t of the samples: 1 unsigned int (default) or 0 double
 *   NVML_STUB_TIMELINE           a file of what the GPU did, "start_ns end_ns sm_share tensor_share" a line by
 *                                CLOCK_MONOTONIC: utilization and GPM are then computed of it
 *   NVML_STUB_PERIOD_MS          from one buffered sample to the next (166.667)
 *   NVML_STUB_BIAS               percentage points that a utilization of the timeline is too high by (0)
 *   NVML_STUB_WINDOW_MS          what a utilization speaks of (167), ending NVML_STUB_LATENCY_MS (0) before its stamp
 *   NVML_STUB_NO_MIG_DEVICES     no MIG device was made
 *   NVML_STUB_GPM_REFUSES        what every sample of GPM is answered with, an nvmlReturn_t
 *   NVML_STUB_GPM_NOT_READY      which sample of GPM, counted from 1, is answered with NOT_READY
 *   NVML_STUB_GPM                GPM is there, with these figures: "2:12.5,3:6,5:0,10:3,20:100,21:900" by metric id;
 *                                with a timeline SM and tensor activity are of that. Unset: the GPU has none
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { /* nvmlReturn_t */
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, VERSION_MISMATCH = 18
};
enum { MAX_DEVICES = 8, BUFFER = 100, MIG = 100 };

typedef unsigned long long u64;
typedef struct { int index; } Device;
typedef struct { char legacy_id[16]; unsigned domain, bus, device, device_id, subsystem_id; char bus_id[32]; } PciInfo;
typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; u64 memory_bytes; unsigned gpu_instance, compute_instance; } ProcessInfo;
typedef struct { u64 stamp_us; union { double d; unsigned u; u64 ull; } value; } Sample;

static Device devices[MAX_DEVICES];
static int references, polls;

static const char *mode(void) { const char *m = getenv("NVML_STUB_MODE"); return m ? m : "ok"; }
static int is(const char *name) { return strcmp(mode(), name) == 0; }
static unsigned number(const char *name, unsigned otherwise) {
    const char *text = getenv(name);
    return text ? (unsigned)atoi(text) : otherwise;
}

/* What is given for a value: itself, or what a driver gives that has none. */
static u64 given(u64 value) { return is("all_ones") ? ~0ull : is("negative") ? (u64)-40 : value; }

static double utilization(void) {
    const char *path = getenv("NVML_STUB_UTILIZATION_FILE"), *text = getenv("NVML_STUB_UTILIZATION");
    double value = (unsigned)given((u64)(text ? atof(text) : 37));
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file) {
        if (fscanf(file, "%lf", &value) != 1) value = 0;
        fclose(file);
    }
    return value;
}

static void hang(void) { for (;;) pause(); }
static void crash(void) { *(volatile int *)NULL = 0; }

static int device_state(void) {
    int limit;
    if (sscanf(mode(), "hang_after_%d", &limit) == 1 && polls >= limit) hang();
    if (sscanf(mode(), "crash_after_%d", &limit) == 1 && polls >= limit) crash();
    if (sscanf(mode(), "abort_after_%d", &limit) == 1 && polls >= limit) abort();
    if (references == 0 || is("uninitialized")) return UNINITIALIZED;
    if (sscanf(mode(), "lost_after_%d", &limit) == 1 && polls >= limit) return GPU_IS_LOST;
    return is("refused_metrics") ? NO_PERMISSION : OK;
}

static void put(double value, unsigned type, Sample *sample) {
    if (type == 0) sample->value.d = value;
    else sample->value.u = (unsigned)value;
}

static u64 clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (u64)now.tv_sec * 1000000000ull + (u64)now.tv_nsec;
}

/* The percent of a span that the timeline fills, by CLOCK_MONOTONIC: 0 of it at all, 1 weighted by its SMs, 2 tensor. */
static double of_file(const char *path, double from_ns, double to_ns, int column) {
    FILE *file = fopen(path, "r");
    double start, end, sm, tensor, busy = 0;
    if (file == NULL) return 0;
    while (fscanf(file, "%lf %lf %lf %lf", &start, &end, &sm, &tensor) == 4) {
        double low = start > from_ns ? start : from_ns, high = end < to_ns ? end : to_ns;
        if (high > low) busy += (high - low) * (column == 0 ? 1 : column == 1 ? sm : tensor);
    }
    fclose(file);
    return to_ns > from_ns ? 100 * busy / (to_ns - from_ns) : 0;
}

static double of_timeline(double from_ns, double to_ns, int column) {
    return of_file(getenv("NVML_STUB_TIMELINE"), from_ns, to_ns, column);
}

/* The utilization that is stamped at a time of the wall clock. */
static double utilization_at(double stamp_ns) {
    if (getenv("NVML_STUB_TIMELINE") == NULL) return utilization();
    double offset = (double)clock_ns(CLOCK_REALTIME) - (double)clock_ns(CLOCK_MONOTONIC);
    double end = stamp_ns - offset - 1e6 * number("NVML_STUB_LATENCY_MS", 0);
    double percent = of_timeline(end - 1e6 * number("NVML_STUB_WINDOW_MS", 167), end, 0) + number("NVML_STUB_BIAS", 0);
    return percent < 100 ? percent : 100;
}

static unsigned listed_samples(const char *text, u64 after_us, unsigned type, Sample *out) {
    unsigned count = 0;
    while (*text && count < BUFFER) {
        char *end;
        u64 stamp_us = strtoull(text, &end, 10);
        double value = *end == ':' ? strtod(end + 1, &end) : 0;
        if (stamp_us > after_us) {
            out[count].stamp_us = stamp_us;
            put(value, type, &out[count++]);
        }
        text = *end == ',' ? end + 1 : "";
    }
    return count;
}

static unsigned clocked_samples(u64 after_us, unsigned type, Sample *out) {
    const char *text = getenv("NVML_STUB_PERIOD_MS");
    u64 period_us = text ? (u64)(1000 * atof(text)) : 166667, last = clock_ns(CLOCK_REALTIME) / 1000 / period_us;
    unsigned count = 0;
    for (u64 tick = last - BUFFER + 1; tick <= last; tick++) {
        if (tick * period_us <= after_us) continue;
        out[count].stamp_us = tick * period_us;
        put(utilization_at(1e3 * (double)(tick * period_us)), type, &out[count++]);
    }
    return count;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (is("absent_driver")) return DRIVER_NOT_LOADED;
    if (is("no_permission")) return NO_PERMISSION;
    if (is("mismatch")) return VERSION_MISMATCH;
    if (is("hang_in_init")) hang();
    if (is("crash_in_init")) crash();
    references++;
    return OK;
}

int nvmlShutdown(void) {
    if (references == 0) return UNINITIALIZED;
    references--;
    return OK;
}

const char *nvmlErrorString(int code) { return code == OK ? "Success" : "an error of the stub"; }

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "999.99");
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = is("no_devices") ? 0 : number("NVML_STUB_DEVICES", 1);
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (index >= MAX_DEVICES) return INVALID_ARGUMENT;
    devices[index].index = (int)index;
    *device = &devices[index];
    return OK;
}

int nvmlDeviceGetName(Device *device, char *name, unsigned length) {
    (void)device;
    snprintf(name, length, "NVIDIA Stub");
    return OK;
}

int nvmlDeviceGetUUID(Device *device, char *uuid, unsigned length) {
    snprintf(uuid, length, device->index < MIG ? "GPU-stub-%d" : "MIG-stub-%d", device->index % MIG);
    return OK;
}

int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *info) {
    memset(info, 0, sizeof *info);
    info->bus = (unsigned)device->index + 1;
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    snprintf(info->legacy_id, sizeof info->legacy_id, "0000:%02X:00.0", info->bus);
    return OK;
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    (void)device;
    *current = *pending = is("mig");
    return OK;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    memory->total = 16ull << 30;
    memory->used = given((u64)(device->index + 1) << 30);
    memory->free = memory->total - memory->used;
    return device_state();
}

int nvmlDeviceGetSamples(Device *device, unsigned kind, u64 after_us, unsigned *type, unsigned *count, Sample *samples) {
    Sample found[BUFFER];
    const char *text = getenv("NVML_STUB_SAMPLES");
    int state = device_state();
    (void)device;
    (void)kind;
    if (state != OK) return state;
    if (is("mig") || is("samples_unsupported")) return NOT_SUPPORTED;
    if (is("no_samples")) return NOT_FOUND;
    *type = number("NVML_STUB_SAMPLE_TYPE", 1);
    if (samples == NULL) { /* like the driver: the size of the buffer, not of what is new */
        *count = BUFFER;
        return OK;
    }
    *count = text ? listed_samples(text, after_us, *type, found) : clocked_samples(after_us, *type, found);
    memcpy(samples, found, *count * sizeof *found);
    return *count ? OK : NOT_FOUND;
}

int nvmlDeviceGetUtilizationRates(Device *device, Utilization *rates) {
    int state = device_state();
    (void)device;
    double window_ns = 1e6 * number("NVML_STUB_WINDOW_MS", 167), now_ns = (double)clock_ns(CLOCK_REALTIME);
    rates->gpu = (unsigned)utilization_at(window_ns * (double)(u64)(now_ns / window_ns));
    rates->memory = 5;
    return state == OK && is("mig") ? NOT_SUPPORTED : state;
}

int nvmlDeviceGetClockInfo(Device *device, unsigned clock, unsigned *mhz) {
    (void)device;
    *mhz = clock == 1 ? (unsigned)given(1500) : 0; /* NVML_CLOCK_SM */
    return device_state();
}

/* Under NVML_STUB_OLD_NAMES it is compiled as a driver before 535 has it. */
#ifdef NVML_STUB_OLD_NAMES
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, u64 *reasons) {
#else
int nvmlDeviceGetCurrentClocksEventReasons(Device *device, u64 *reasons) {
#endif
    (void)device;
    *reasons = given(number("NVML_STUB_THROTTLE_REASONS", 0));
    return device_state();
}

#ifdef NVML_STUB_OLD_NAMES
#define nvmlDeviceGetComputeRunningProcesses_v3 nvmlDeviceGetComputeRunningProcesses_v2 /* before 510 */
#endif
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, ProcessInfo *processes) {
    unsigned room = *count, found = number("NVML_STUB_PROCESSES", 1);
    double now_ns = (double)clock_ns(CLOCK_MONOTONIC);
    if (getenv("NVML_STUB_NEIGHBOUR") && of_file(getenv("NVML_STUB_NEIGHBOUR"), now_ns - 1e8, now_ns, 0) > 0) found++;
    int state = is("refused_processes") ? NO_PERMISSION : device_state();
    (void)device;
    if (state != OK) return state;
    *count = found;
    if (room < found) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++) processes[i] = (ProcessInfo){1000 + i, 1u << 20, 0, 0};
    return OK;
}

int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
    (void)device;
    *milliwatts = (unsigned)given(250500);
    return is("refused_power") ? NO_PERMISSION : device_state();
}

int nvmlDeviceGetTemperature(Device *device, unsigned sensor, unsigned *celsius) {
    int state = device_state();
    (void)device;
    (void)sensor;
    *celsius = (unsigned)given(45);
    usleep(1000 * number("NVML_STUB_DELAY_MS", 0));
    polls++;
    return state;
}

/* GPM: a sample is when it was taken, and the figures of two are of the time between them. Older drivers lack it. */
#ifndef NVML_STUB_OLD_NAMES
typedef struct { double at_ns, scale; } GpmSample;
typedef struct { unsigned id; int code; double value; const char *short_name, *long_name, *unit; } GpmMetric;
typedef struct { unsigned version, count; GpmSample *first, *second; GpmMetric metrics[]; } GpmMetrics;
typedef struct { unsigned version, supported; } GpmSupport;

int nvmlGpmQueryDeviceSupport(Device *device, GpmSupport *support) {
    (void)device;
    support->supported = getenv("NVML_STUB_GPM") != NULL;
    return device_state();
}

int nvmlGpmSampleAlloc(GpmSample **sample) {
    *sample = calloc(1, sizeof **sample);
    return *sample ? OK : INSUFFICIENT_SIZE;
}

int nvmlGpmSampleFree(GpmSample *sample) {
    free(sample);
    return OK;
}

static int gpm_sample(GpmSample *sample, double scale) {
    static int asked;
    const char *not_ready = getenv("NVML_STUB_GPM_NOT_READY"), *refuses = getenv("NVML_STUB_GPM_REFUSES");
    if (++asked == (not_ready ? atoi(not_ready) : 0)) return 27;
    *sample = (GpmSample){(double)clock_ns(CLOCK_MONOTONIC), scale};
    return refuses ? atoi(refuses) : device_state();
}

int nvmlGpmSampleGet(Device *device, GpmSample *sample) {
    (void)device;
    return is("mig") ? NOT_SUPPORTED : gpm_sample(sample, 1);
}

int nvmlGpmMigSampleGet(Device *device, unsigned instance, GpmSample *sample) {
    (void)device;
    return instance == 7 || instance == 9 ? gpm_sample(sample, instance == 7 ? 1 : 0.5) : INVALID_ARGUMENT;
}

static int gpm_figure(unsigned id, const GpmMetrics *asked, double *value) {
    const char *text = getenv("NVML_STUB_GPM");
    if (getenv("NVML_STUB_TIMELINE") && (id == 2 || id == 5)) {
        *value = of_timeline(asked->first->at_ns, asked->second->at_ns, id == 2 ? 1 : 2);
        return OK;
    }
    while (text && *text) {
        char *end;
        if (strtoul(text, &end, 10) == id && *end == ':') { *value = strtod(end + 1, NULL); return OK; }
        text = strchr(text, ',');
        if (text) text++;
    }
    return NOT_SUPPORTED;
}

int nvmlGpmMetricsGet(GpmMetrics *asked) {
    if (asked->version != 1) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < asked->count; i++) {
        asked->metrics[i].code = gpm_figure(asked->metrics[i].id, asked, &asked->metrics[i].value);
        asked->metrics[i].value *= asked->second->scale;
    }
    return OK;
}
#endif

static Device mig_devices[] = {{MIG + 7}, {MIG + 9}};
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) { (void)device; *count = 3; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **mig) {
    (void)device;
    if (index == 0 || getenv("NVML_STUB_NO_MIG_DEVICES")) return NOT_FOUND;
    *mig = &mig_devices[index - 1];
    return OK;
}
int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *id) { *id = (unsigned)(device->index % MIG); return OK; }
