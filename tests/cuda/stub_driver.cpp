// libcuda.so.1 for machines without a GPU: pretends devices whose memory is the host's. Copies and fills
// are done, at once; kernels are found in the PTX but not run. What the adapter's tests need to steer and
// see goes by the environment:
//
//     FUNLIB_STUB_DEVICES   how many devices there are (1)
//     FUNLIB_STUB_COMPUTE   their compute capability ("9.0")
//     FUNLIB_STUB_FAIL      "cuMemAlloc_v2=2 ...": calls that return this error
//     FUNLIB_STUB_LOG       a file to which each launch and each error injected is appended
//     FUNLIB_STUB_PTX       a folder that gets the PTX of each module
//     FUNLIB_STUB_LAZY      "1": what is put into a stream counts as done only when somebody waits for it
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#define STUB extern "C" __attribute__((visibility("default"))) int

namespace {

using Clock = std::chrono::steady_clock;

std::string environment(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

void log(const std::string& line) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const std::string path = environment("FUNLIB_STUB_LOG", "");
  if (path.empty()) return;
  if (FILE* file = std::fopen(path.c_str(), "a")) {
    std::fprintf(file, "%s\n", line.c_str());
    std::fclose(file);
  }
}

// The error that the test wants of this call; 0 for none.
int injected(const char* call) {
  std::istringstream wishes(environment("FUNLIB_STUB_FAIL", ""));
  for (std::string wish; wishes >> wish;) {
    const auto equals = wish.find('=');
    if (equals != std::string::npos && wish.substr(0, equals) == call) {
      log(std::string("error ") + wish);
      return std::atoi(wish.c_str() + equals + 1);
    }
  }
  return 0;
}
#define INJECT \
  if (const int error = injected(__func__)) return error

enum class Kind { device, host, managed };
struct Allocation {
  Kind kind;
  size_t size;
  int device;
};
std::mutex allocations_mutex;
std::map<uintptr_t, Allocation> allocations;
constexpr size_t device_bytes = size_t(4) << 30;

struct Context {
  int device;
};
Context contexts[8];
thread_local std::vector<Context*> stack;

// What was put into a stream: events recorded and waited for, by their place in it.
struct Work {
  struct Wait {
    size_t place;
    std::shared_ptr<Work> other;
    size_t other_place;
  };
  size_t submitted = 0, done = 0;
  std::vector<Wait> waits;
};
struct Stream {
  int device;
  std::shared_ptr<Work> work = std::make_shared<Work>();
};
struct Event {
  Clock::time_point time;
  bool timed;
  std::shared_ptr<Work> work;  // where it was recorded
  size_t place = 0;
};
std::mutex work_mutex;
constexpr int not_ready = 600;

// With the mutex held: does the work up to a place, and first what it waits for.
void reach(Work& work, size_t place) {
  if (place <= work.done) return;
  work.done = place;
  for (const auto& wait : work.waits)
    if (wait.place <= place) reach(*wait.other, wait.other_place);
  work.waits.erase(std::remove_if(work.waits.begin(), work.waits.end(),
                                  [&](const auto& wait) { return wait.place <= place; }),
                   work.waits.end());
}

bool is_lazy() {
  static const bool lazy = environment("FUNLIB_STUB_LAZY", "0") == "1";
  return lazy;
}

bool is_pending(const Event& event) {
  const std::lock_guard<std::mutex> lock(work_mutex);
  return event.work != nullptr && event.place > event.work->done;
}
struct Function {
  std::string name;
};
struct Module {
  std::map<std::string, std::unique_ptr<Function>> functions;
};

int device_count() { return std::atoi(environment("FUNLIB_STUB_DEVICES", "1").c_str()); }

int allocate(void** address, size_t size, Kind kind) {
  if (stack.empty()) return 201;
  const std::lock_guard<std::mutex> lock(allocations_mutex);
  size_t used = 0;
  for (const auto& entry : allocations) used += entry.second.size;
  if (size > device_bytes - std::min(used, device_bytes)) return 2;
  *address = std::aligned_alloc(512, (size + 511) / 512 * 512);
  if (*address == nullptr) return 2;
  allocations[reinterpret_cast<uintptr_t>(*address)] = {kind, size, stack.back()->device};
  return 0;
}

int release(void* address, bool host) {
  const std::lock_guard<std::mutex> lock(allocations_mutex);
  const auto found = allocations.find(reinterpret_cast<uintptr_t>(address));
  if (found == allocations.end() || (found->second.kind == Kind::host) != host) return 1;
  allocations.erase(found);
  std::free(address);
  return 0;
}

}  // namespace

STUB cuInit(unsigned) {
  INJECT;
  return 0;
}
STUB cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
STUB cuGetErrorName(int error, const char** name) {
  *name = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OF_THE_STUB";
  return 0;
}
STUB cuGetErrorString(int error, const char** text) {
  *text = error == 700 ? "an illegal memory access was encountered" : "an error of the stub";
  return 0;
}
STUB cuDeviceGetCount(int* count) {
  INJECT;
  *count = device_count();
  return 0;
}
STUB cuDeviceGet(int* device, int index) {
  if (index >= device_count()) return 101;
  *device = index;
  return 0;
}
STUB cuDeviceGetName(char* name, int size, int device) {
  std::snprintf(name, size_t(size), "Stub GPU %d", device);
  return 0;
}
STUB cuDeviceGetUuid(char* uuid, int device) {
  std::memset(uuid, 0, 16);
  uuid[15] = char(device + 1);
  return 0;
}
STUB cuDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, size_t(size), "0000:%02x:00.0", device + 1);
  return 0;
}
STUB cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = device_bytes;
  return 0;
}
STUB cuDeviceGetAttribute(int* value, int attribute, int) {
  // Those of an H200, by their numbers in the driver's interface.
  static const std::map<int, int> values = {
      {1, 1024},  {2, 1024},  {3, 1024}, {4, 64},       {5, 2147483647}, {6, 65535},
      {7, 65535}, {9, 65536}, {10, 32},  {12, 65536},   {13, 1980000},   {14, 512},
      {16, 132},  {18, 0},    {32, 1},   {36, 3201000}, {37, 6144},      {38, 62914560},
      {83, 1},    {88, 0},    {89, 1},   {95, 1},       {97, 232448},
  };
  const std::string compute = environment("FUNLIB_STUB_COMPUTE", "9.0");
  if (attribute == 75)
    *value = std::atoi(compute.c_str());
  else if (attribute == 76)
    *value = std::atoi(compute.c_str() + compute.find('.') + 1);
  else if (values.count(attribute) != 0)
    *value = values.at(attribute);
  else
    return 1;
  return 0;
}
STUB cuDeviceCanAccessPeer(int* possible, int, int) {
  *possible = 1;
  return 0;
}
STUB cuDevicePrimaryCtxRetain(Context** context, int device) {
  INJECT;
  contexts[device].device = device;
  *context = &contexts[device];
  return 0;
}
STUB cuDevicePrimaryCtxRelease_v2(int) { return 0; }
STUB cuCtxGetCurrent(Context** context) {
  *context = stack.empty() ? nullptr : stack.back();
  return 0;
}
STUB cuCtxPushCurrent_v2(Context* context) {
  stack.push_back(context);
  return 0;
}
STUB cuCtxPopCurrent_v2(Context** context) {
  if (stack.empty()) return 201;
  *context = stack.back();
  stack.pop_back();
  return 0;
}
STUB cuCtxSynchronize() {
  INJECT;
  return stack.empty() ? 201 : 0;
}
STUB cuCtxEnablePeerAccess(Context*, unsigned) { return 0; }
STUB cuCtxDisablePeerAccess(Context*) { return 0; }
STUB cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return stack.empty() ? 201 : 0;
}
STUB cuMemGetInfo_v2(size_t* free, size_t* total) {
  const std::lock_guard<std::mutex> lock(allocations_mutex);
  size_t used = 0;
  for (const auto& entry : allocations) used += entry.second.size;
  *free = device_bytes - used;
  *total = device_bytes;
  return stack.empty() ? 201 : 0;
}
STUB cuMemAlloc_v2(void** address, size_t size) {
  INJECT;
  return allocate(address, size, Kind::device);
}
STUB cuMemAllocManaged(void** address, size_t size, unsigned) {
  INJECT;
  return allocate(address, size, Kind::managed);
}
STUB cuMemHostAlloc(void** address, size_t size, unsigned) {
  INJECT;
  return allocate(address, size, Kind::host);
}
STUB cuMemFree_v2(void* address) { return release(address, false); }
STUB cuMemFreeHost(void* address) { return release(address, true); }
STUB cuPointerGetAttribute(void* value, int attribute, uintptr_t address) {
  const std::lock_guard<std::mutex> lock(allocations_mutex);
  auto found = allocations.upper_bound(address);
  if (found == allocations.begin()) return 1;
  --found;
  if (address >= found->first + found->second.size) return 1;
  const Allocation& allocation = found->second;
  switch (attribute) {
    case 2:
      *static_cast<unsigned*>(value) = allocation.kind == Kind::host ? 1 : 2;
      return 0;
    case 8:
      *static_cast<unsigned*>(value) = allocation.kind == Kind::managed;
      return 0;
    case 9:
      *static_cast<int*>(value) = allocation.device;
      return 0;
    case 11:
      *static_cast<uintptr_t*>(value) = found->first;
      return 0;
    case 12:
      *static_cast<size_t*>(value) = allocation.size;
      return 0;
    default:
      return 1;
  }
}
STUB cuMemcpy(void* target, const void* source, size_t size) {
  INJECT;
  std::memmove(target, source, size);
  return 0;
}
STUB cuMemcpyAsync(void* target, const void* source, size_t size, Stream*) {
  INJECT;
  std::memmove(target, source, size);
  return 0;
}
struct Copy2D {
  size_t source_x, source_y;
  int source_type;
  const void* source_host;
  const char* source;
  void* source_array;
  size_t source_pitch;
  size_t target_x, target_y;
  int target_type;
  void* target_host;
  char* target;
  void* target_array;
  size_t target_pitch;
  size_t width, height;
};
STUB cuMemcpy2DAsync_v2(const Copy2D* copy, Stream*) {
  INJECT;
  for (size_t line = 0; line < copy->height; ++line)
    std::memmove(copy->target + line * copy->target_pitch, copy->source + line * copy->source_pitch,
                 copy->width);
  return 0;
}
STUB cuMemsetD8Async(unsigned char* at, unsigned char value, size_t count, Stream*) {
  INJECT;
  std::fill_n(at, count, value);
  return 0;
}
STUB cuMemsetD16Async(unsigned short* at, unsigned short value, size_t count, Stream*) {
  INJECT;
  std::fill_n(at, count, value);
  return 0;
}
STUB cuMemsetD32Async(unsigned* at, unsigned value, size_t count, Stream*) {
  INJECT;
  std::fill_n(at, count, value);
  return 0;
}
STUB cuMemsetD2D8Async(unsigned char* at, size_t pitch, unsigned char value, size_t width,
                       size_t height, Stream*) {
  INJECT;
  for (size_t line = 0; line < height; ++line) std::fill_n(at + line * pitch, width, value);
  return 0;
}
STUB cuMemsetD2D32Async(char* at, size_t pitch, unsigned value, size_t width, size_t height,
                        Stream*) {
  INJECT;
  for (size_t line = 0; line < height; ++line)
    std::fill_n(reinterpret_cast<unsigned*>(at + line * pitch), width, value);
  return 0;
}
STUB cuMemPrefetchAsync(const void*, size_t, int, Stream*) {
  INJECT;
  return 0;
}
STUB cuMemAdvise(const void*, size_t, int, int) { return 0; }
STUB cuStreamCreateWithPriority(Stream** stream, unsigned, int) {
  INJECT;
  if (stack.empty()) return 201;
  *stream = new Stream{stack.back()->device};
  return 0;
}
STUB cuStreamDestroy_v2(Stream* stream) {
  {
    const std::lock_guard<std::mutex> lock(work_mutex);
    reach(*stream->work, stream->work->submitted);
  }
  delete stream;
  return 0;
}
STUB cuStreamSynchronize(Stream* stream) {
  INJECT;
  const std::lock_guard<std::mutex> lock(work_mutex);
  reach(*stream->work, stream->work->submitted);
  return 0;
}
STUB cuStreamQuery(Stream* stream) {
  const std::lock_guard<std::mutex> lock(work_mutex);
  return stream->work->done < stream->work->submitted ? not_ready : 0;
}
STUB cuStreamWaitEvent(Stream* stream, Event* event, unsigned) {
  INJECT;
  const std::lock_guard<std::mutex> lock(work_mutex);
  if (event->work != nullptr)
    stream->work->waits.push_back({++stream->work->submitted, event->work, event->place});
  return 0;
}
STUB cuEventCreate(Event** event, unsigned flags) {
  INJECT;
  *event = new Event{{}, (flags & 2) == 0, nullptr};
  return 0;
}
STUB cuEventDestroy_v2(Event* event) {
  delete event;
  return 0;
}
STUB cuEventRecord(Event* event, Stream* stream) {
  INJECT;
  // Of one device, as the driver demands.
  if (stack.empty() || (stream != nullptr && stream->device != stack.back()->device)) return 400;
  event->time = Clock::now();
  if (stream == nullptr) return 0;
  const std::lock_guard<std::mutex> lock(work_mutex);
  event->work = stream->work;
  event->place = ++stream->work->submitted;
  if (!is_lazy()) reach(*event->work, event->place);
  return 0;
}
STUB cuEventQuery(Event* event) {
  INJECT;
  return is_pending(*event) ? not_ready : 0;
}
STUB cuEventSynchronize(Event* event) {
  INJECT;
  const std::lock_guard<std::mutex> lock(work_mutex);
  if (event->work != nullptr) reach(*event->work, event->place);
  return 0;
}
STUB cuEventElapsedTime(float* milliseconds, Event* first, Event* second) {
  if (!first->timed || !second->timed) return 400;
  if (is_pending(*first) || is_pending(*second)) return not_ready;
  *milliseconds = std::chrono::duration<float, std::milli>(second->time - first->time).count();
  return 0;
}
STUB cuModuleLoadDataEx(Module** module, const char* text, unsigned count, int* options,
                        void** values) {
  INJECT;
  static std::atomic<int> modules{0};
  const std::string ptx = text;
  if (ptx.find(".version") == std::string::npos) {
    for (unsigned i = 0; i < count; ++i)
      if (options[i] == 5)
        std::strcpy(static_cast<char*>(values[i]), "the stub found no .version in the PTX");
    return 218;
  }
  const std::string folder = environment("FUNLIB_STUB_PTX", "");
  auto made = std::make_unique<Module>();
  std::string first;
  for (size_t at = 0; (at = ptx.find(".entry ", at)) != std::string::npos;) {
    at += 7;
    const std::string name = ptx.substr(at, ptx.find_first_of("( \t\n", at) - at);
    made->functions[name] = std::make_unique<Function>(Function{name});
    if (first.empty()) first = name;
  }
  if (!folder.empty()) {
    const std::string path = folder + "/" + first + "." + std::to_string(modules++) + ".ptx";
    if (FILE* file = std::fopen(path.c_str(), "w")) {
      std::fputs(text, file);
      std::fclose(file);
    }
  }
  *module = made.release();
  return 0;
}
STUB cuModuleUnload(Module* module) {
  delete module;
  return 0;
}
STUB cuModuleGetFunction(Function** function, Module* module, const char* name) {
  const auto found = module->functions.find(name);
  if (found == module->functions.end()) return 500;
  *function = found->second.get();
  return 0;
}
STUB cuModuleGetGlobal_v2(void**, size_t*, Module*, const char*) { return 500; }
STUB cuFuncGetAttribute(int* value, int attribute, Function*) {
  *value = attribute == 0 ? 1024 : 0;
  return 0;
}
STUB cuFuncSetAttribute(Function* function, int attribute, int value) {
  log("attribute " + function->name + " " + std::to_string(attribute) + " " +
      std::to_string(value));
  return 0;
}
STUB cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function*, int, size_t) {
  *blocks = 2;
  return 0;
}
struct LaunchAttribute {
  int id, padding;
  unsigned value[16];
};
struct LaunchConfig {
  unsigned gx, gy, gz, x, y, z, bytes;
  Stream* stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};

static int launch(const Function* function, const LaunchConfig& config) {
  std::ostringstream line;
  line << "launch " << function->name << " " << config.gx << "x" << config.gy << "x" << config.gz
       << " " << config.x << "x" << config.y << "x" << config.z << " " << config.bytes;
  for (unsigned i = 0; i < config.attribute_count; ++i) {
    const auto& [id, padding, value] = config.attributes[i];
    if (id == 2)
      line << " cooperative";
    else if (id == 4)
      line << " cluster " << value[0] << "x" << value[1] << "x" << value[2];
    else
      return 1;  // CUDA_ERROR_INVALID_VALUE
  }
  log(line.str());
  return 0;
}
STUB cuLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned x,
                    unsigned y, unsigned z, unsigned bytes, Stream* stream, void**, void**) {
  INJECT;
  return launch(function, {gx, gy, gz, x, y, z, bytes, stream, nullptr, 0});
}
STUB cuLaunchKernelEx(const LaunchConfig* config, Function* function, void**, void**) {
  INJECT;
  return launch(function, *config);
}
