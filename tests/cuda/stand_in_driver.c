// A stand-in for libcuda.so.1 under NVIDIA's own cuda-core and cuda-bindings: one device in host memory.
// Memory, copies and launches are Python's (stand_in_driver.py). Numbers are those of cuda.h (CUDA Driver API 13).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
typedef uint64_t Pointer;
enum { OK, NO_CONTEXT = 201, INVALID_IMAGE = 200, NOT_FOUND = 500 };
enum { COMPUTE_CAPABILITY_MAJOR = 75, COMPUTE_CAPABILITY_MINOR = 76, KERNELS = 4096 };

typedef struct {
  const char *name;
  unsigned grid[3], block[3], shared;
  int cooperative;
  void *stream, **arguments;
  float ms;  // how long it takes the device
} Launch;

static struct {
  Result (*status)(void);  // of a call now: an error of a kernel stays
  Result (*allocate)(size_t size, Pointer *made);
  Result (*release)(Pointer memory);
  Result (*copy)(Pointer to, Pointer from, size_t size, Pointer device, void *stream);
  Result (*launch)(Launch *launch);
  Result (*allow_shared)(const char *name, int bytes);
  const char *(*name_of)(Result error);
  Result (*query)(void);
} hooks;
void set_hooks(const void *given) { memcpy(&hooks, given, sizeof hooks); }

Result cuInit(unsigned flags) { return OK; }
Result cuDriverGetVersion(int *version) { return *version = 13000, OK; }

Result cuDeviceGetCount(int *count) { return *count = 1, OK; }
Result cuDeviceGet(int *device, int ordinal) { return *device = ordinal, OK; }
Result cuDeviceGetName(char *name, int size, int device) { return snprintf(name, size, "NVIDIA Stand-in"), OK; }
Result cuDeviceGetUuid(char *uuid, int device) { return memset(uuid, 7, 16), OK; }
Result cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == COMPUTE_CAPABILITY_MAJOR ? 9 : attribute != COMPUTE_CAPABILITY_MINOR;
  return OK;
}

static char pool, library;
static void *context;
Result cuDevicePrimaryCtxRetain(void **made, int device) { return *made = &context, hooks.status(); }
Result cuDevicePrimaryCtxRelease(int device) { return OK; }
Result cuCtxSetCurrent(void *given) { return context = given, OK; }
Result cuCtxGetCurrent(void **current) { return *current = context, OK; }
Result cuCtxPushCurrent(void *given) { return context = given, OK; }
Result cuCtxPopCurrent(void **current) { return *current = context, OK; }
Result cuCtxGetDevice(int *device) { return context ? (*device = 0, OK) : NO_CONTEXT; }
Result cuCtxSynchronize(void) { return hooks.status(); }

Result cuDeviceGetMemPool(void **found, int device) { return *found = &pool, OK; }
Result cuDeviceGetDefaultMemPool(void **found, int device) { return *found = &pool, OK; }
Result cuMemGetMemPool(void **found, void *location, int type) { return *found = &pool, OK; }
Result cuMemGetDefaultMemPool(void **found, void *location, int type) { return *found = &pool, OK; }
Result cuMemPoolGetAttribute(void *from, int attribute, void *value) { return *(uint64_t *)value = 0, OK; }
Result cuMemPoolSetAttribute(void *from, int attribute, void *value) { return OK; }
Result cuMemAllocFromPoolAsync(Pointer *made, size_t size, void *from, void *stream) {
  return hooks.allocate(size, made);
}
Result cuMemAllocAsync(Pointer *made, size_t size, void *stream) { return hooks.allocate(size, made); }
Result cuMemFreeAsync(Pointer memory, void *stream) { return hooks.release(memory); }
Result cuMemcpyHtoD(Pointer to, const void *from, size_t size) { return hooks.copy(to, (Pointer)from, size, to, 0); }
Result cuMemcpyDtoH(void *to, Pointer from, size_t size) { return hooks.copy((Pointer)to, from, size, from, 0); }
Result cuMemcpyHtoDAsync(Pointer to, const void *from, size_t size, void *stream) {
  return hooks.copy(to, (Pointer)from, size, to, stream);
}
Result cuMemcpyDtoHAsync(void *to, Pointer from, size_t size, void *stream) {
  return hooks.copy((Pointer)to, from, size, from, stream);
}

static char names[KERNELS][128];
static int kernels;
Result cuLibraryLoadData(void **made, const void *code, void *jit, void *values, unsigned count, void *options,
                         void *more, unsigned number) {
  return *made = &library, memcmp(code, "\177ELF", 4) ? INVALID_IMAGE : hooks.status();
}
Result cuLibraryUnload(void *given) { return OK; }
Result cuLibraryGetKernel(void **kernel, void *given, const char *name) {
  if (kernels == KERNELS) return NOT_FOUND;
  return strncpy(names[kernels], name, 127), *kernel = names[kernels++], OK;
}
Result cuKernelGetFunction(void **function, void *kernel) { return *function = kernel, OK; }
Result cuKernelGetLibrary(void **found, void *kernel) { return *found = &library, OK; }
Result cuKernelSetAttribute(int attribute, int value, void *kernel, int device) {
  return attribute == 8 ? hooks.allow_shared(kernel, value) : OK;  // MAX_DYNAMIC_SHARED_SIZE_BYTES
}

Result cuFuncLoad(void *function) { return OK; }

// The host queues, which takes it a while for each launch; the device does what is queued, in order.
static float host_ms, device_ms;
static Result launch_on(Launch launch) {
  host_ms += 0.05f;
  Result result = hooks.launch(&launch);
  device_ms = (device_ms > host_ms ? device_ms : host_ms) + launch.ms;
  return result;
}
static Result wait_for(Result result) {
  if (host_ms < device_ms) host_ms = device_ms;
  return result;
}
Result cuLaunchCooperativeKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, void *stream, void **arguments) {
  return launch_on((Launch){kernel, {gx, gy, gz}, {bx, by, bz}, shared, 1, stream, arguments, 1.5f});
}
Result cuLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void *stream, void **arguments, void **extra) {
  return launch_on((Launch){kernel, {gx, gy, gz}, {bx, by, bz}, shared, 0, stream, arguments, 1.5f});
}

Result cuStreamIsCapturing(void *stream, int *status) { return *status = 0, OK; }
Result cuStreamGetCaptureInfo(void *stream, int *status) { return *status = 0, OK; }
Result cuThreadExchangeStreamCaptureMode(int *mode) { return OK; }
Result cuStreamGetCtx(void *stream, void **found) { return *found = &context, OK; }
Result cuStreamGetDevice(void *stream, int *device) { return *device = 0, OK; }
Result cuStreamSynchronize(void *stream) { return wait_for(hooks.status()); }
Result cuStreamQuery(void *stream) { return wait_for(hooks.query()); }
Result cuEventCreate(void **event, unsigned flags) { return *event = calloc(1, sizeof(float)), OK; }
Result cuEventRecord(void *event, void *stream) {
  return *(float *)event = device_ms = device_ms > host_ms ? device_ms : host_ms, OK;
}
Result cuEventSynchronize(void *event) { return wait_for(hooks.status()); }
Result cuEventDestroy(void *event) { return free(event), OK; }
Result cuEventElapsedTime(float *ms, void *begin, void *end) { return *ms = *(float *)end - *(float *)begin, OK; }

Result cuGetErrorName(Result error, const char **name) { return *name = hooks.name_of(error), OK; }
Result cuGetErrorString(Result error, const char **text) { return *text = "as the driver explains it", OK; }

static Result absent(void) { return NOT_FOUND; }
Result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
  *function = strcmp(name, "cuGetProcAddress") ? dlsym(RTLD_DEFAULT, name) : (void *)cuGetProcAddress_v2;
  if (!*function) *function = (void *)absent;
  if (status) *status = 0;
  return OK;
}
Result cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
