#include "runtime/tensor.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "program/arguments.hpp"
#include "program/program.hpp"

namespace funlib {

// ---- storage ---------------------------------------------------------------------------------

Storage::Storage(Ref<Queue> queue, size_t bytes)
    : queue_(std::move(queue)), bytes_(bytes), block_(queue_->device.pool().allocate(bytes)) {}

Storage::~Storage() { queue_->device.pool().give_back(std::move(block_)); }

void Storage::check_access(bool writes) const {
  for (const auto& mapping : mappings_)
    if (writes || mapping.writes)
      fail(FUNLIB_ERROR_BUSY, "the tensor's memory is open in a ",
           mapping.writes ? "writable" : "read-only", " host view; release the view before ",
           writes ? "writing" : "using", " the tensor");
}

void Storage::add_dependencies(const Queue& queue, bool writes, std::vector<sycl::event>& events) {
  for (const auto& use : block_.uses)
    if (use.queue_id != queue.id && (writes || use.writes)) events.push_back(use.event);
}

void Storage::record(const Queue& queue, bool writes, const Ref<Event>& event) {
  if (writes) last_write_ = event;
  if (block_.data == nullptr) return;
  for (auto& use : block_.uses) {
    if (use.queue_id == queue.id && use.writes == writes) {
      use.event = event->last;
      return;
    }
  }
  constexpr size_t many = 8;
  if (block_.uses.size() >= many) drop_finished(block_.uses);
  block_.uses.push_back({queue.id, writes, event->last});
}

std::vector<sycl::event> Storage::events() const {
  std::vector<sycl::event> events;
  for (const auto& use : block_.uses) events.push_back(use.event);
  return events;
}

void Storage::open_mapping(Mapping mapping) {
  check_access(mapping.writes);
  mappings_.push_back(std::move(mapping));
}

namespace {

template <typename Mappings>
auto find_by_data(Mappings& mappings, void* data) {
  const auto found = std::find_if(mappings.begin(), mappings.end(),
                                  [&](const auto& mapping) { return mapping.data == data; });
  if (found == mappings.end()) invalid("data is not the address of an open mapping of this tensor");
  return found;
}

}  // namespace

const Storage::Mapping& Storage::find_mapping(void* data) const {
  return *find_by_data(mappings_, data);
}

Storage::Mapping Storage::close_mapping(void* data) {
  const auto found = find_by_data(mappings_, data);
  Mapping mapping = std::move(*found);
  mappings_.erase(found);
  return mapping;
}

// ---- operations ------------------------------------------------------------------------------

Operation::Operation(Ref<Queue> queue, const Label& label)
    : queue_(std::move(queue)), label_(label) {
  enter_runtime();
}

void check_reach(const Queue& queue, const Tensor& tensor, const char* name) {
  const auto place = [](const Queue& queue) {
    return concat("device ", queue.device.index(), ", ", queue.device.info().name, " (",
                  queue.device.info().backend, ", queue \"", queue.name, "\")");
  };
  if (&tensor.queue->device != &queue.device)
    invalid(name, " is on ", place(*tensor.queue), ", which ", place(queue),
            " can't reach; copy it over through the host (to_host, then from_numpy on the other "
            "queue)");
}

void Operation::access(const Tensor& tensor, const char* name, bool writes) {
  check_reach(*queue_, tensor, name);
  accesses_.push_back({tensor.storage, writes});
}

Ref<Storage> Operation::workspace(size_t bytes) {
  auto storage = Ref<Storage>::make(queue_, bytes);
  accesses_.push_back({storage, true});
  return storage;
}

void Operation::add(std::function<void(sycl::handler&)> command) {
  commands_.push_back([command = std::move(command)](sycl::queue& queue,
                                                     const std::vector<sycl::event>& dependencies) {
    return queue.submit([&](sycl::handler& handler) {
      handler.depends_on(dependencies);
      command(handler);
    });
  });
}

// Without a handler: an error that only the driver has a name for would be lost on the way through one,
// and the copy taken for done (tests/test_cuda.py).
void Operation::add_copy(void* target, const void* source, size_t bytes) {
  commands_.push_back([=](sycl::queue& queue, const std::vector<sycl::event>& dependencies) {
    return queue.memcpy(target, source, bytes, dependencies);
  });
}

Ref<Event> Operation::finish() {
  std::vector<sycl::event> dependencies, earlier;
  sycl::event last;
  bool submitted = false;
  std::lock_guard<std::mutex> lock(queue_->device.submission());
  for (const auto& access : accesses_) {
    if (!serves_mapping_) access.storage->check_access(access.writes);
    access.storage->add_dependencies(*queue_, access.writes, dependencies);
  }
  if (commands_.empty())
    return Ref<Event>::make(queue_, label_, std::move(earlier), std::move(last), false);
  const auto record = [&] {
    auto event = Ref<Event>::make(queue_, label_, std::move(earlier), last, true);
    for (auto& access : accesses_) access.storage->record(*queue_, access.writes, event);
    return event;
  };
  try {
    for (const auto& command : commands_) {
      sycl::event event = command(queue_->handle, dependencies);
      // In-order queues: what the first command waits for, the others wait for too.
      dependencies.clear();
      if (submitted) earlier.push_back(std::move(last));
      last = std::move(event);
      submitted = true;
    }
  } catch (...) {
    // The commands that did start use the memory.
    if (submitted) record();
    try {
      throw;
    } catch (const sycl::exception& error) {
      fail(status_of(error), label_.text(), " failed: ", error.what());
    }
  }
  return record();
}

// ---- strides ---------------------------------------------------------------------------------

void contiguous_strides(int64_t ndim, const int64_t* shape, int64_t* strides) {
  int64_t stride = 1;
  for (int64_t i = ndim - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= std::max<int64_t>(shape[i], 1);
  }
}

namespace {

// The same copy with as few dimensions as it needs: extents of one dropped, dimensions ordered by
// the destination's stride, neighbours that are one run in both views merged.
struct CopyShape {
  int64_t ndim = 0;
  int64_t shape[FUNLIB_MAX_DIMS] = {}, destination[FUNLIB_MAX_DIMS] = {},
          source[FUNLIB_MAX_DIMS] = {};
};

CopyShape simplify(int64_t ndim, const int64_t* shape, const int64_t* destination,
                   const int64_t* source) {
  int64_t order[FUNLIB_MAX_DIMS];
  int64_t used = 0;
  for (int64_t i = 0; i < ndim; ++i)
    if (shape[i] != 1) order[used++] = i;
  std::stable_sort(order, order + used, [&](int64_t a, int64_t b) {
    return std::abs(destination[a]) > std::abs(destination[b]);
  });
  CopyShape simple;
  for (int64_t n = 0; n < used; ++n) {
    const int64_t i = order[n];
    const int64_t last = simple.ndim - 1;
    if (last >= 0 && simple.destination[last] == destination[i] * shape[i] &&
        simple.source[last] == source[i] * shape[i]) {
      simple.shape[last] *= shape[i];
      simple.destination[last] = destination[i];
      simple.source[last] = source[i];
    } else {
      simple.shape[simple.ndim] = shape[i];
      simple.destination[simple.ndim] = destination[i];
      simple.source[simple.ndim] = source[i];
      ++simple.ndim;
    }
  }
  return simple;
}

// As the kernel copy_strided declares it.
struct CopyStridedArguments {
  int64_t total;
  int64_t shape[FUNLIB_MAX_DIMS];
  int64_t destination_strides[FUNLIB_MAX_DIMS];
  int64_t source_strides[FUNLIB_MAX_DIMS];
  int64_t unused;
};
constexpr size_t copy_work_group = 256;

sycl::kernel copy_kernel(Device& device, int64_t ndim, int64_t itemsize) {
  KernelSpec spec;
  spec.source = "copy_strided.cpp";
  spec.entry = "copy_strided";
  spec.label = concat("copy_strided ", ndim, "d ", itemsize, " bytes");
  spec.define("FUNLIB_NDIM", ndim);
  spec.define("FUNLIB_ITEMSIZE", itemsize);
  return get_kernel(device, spec);
}

bool same_run(const CopyShape& copy) {
  return copy.ndim == 0 || (copy.ndim == 1 && copy.destination[0] == 1 && copy.source[0] == 1);
}

}  // namespace

void copy_elements(Operation& operation, int64_t ndim, const int64_t* shape, int64_t itemsize,
                   void* destination, const int64_t* destination_strides, const void* source,
                   const int64_t* source_strides) {
  const int64_t total =
      std::accumulate(shape, shape + ndim, int64_t(1), std::multiplies<int64_t>());
  if (total == 0) return;
  const CopyShape copy = simplify(ndim, shape, destination_strides, source_strides);
  if (same_run(copy)) {
    operation.add_copy(destination, source, size_t(total * itemsize));
    return;
  }
  CopyStridedArguments arguments{};
  arguments.total = total;
  std::copy_n(copy.shape, copy.ndim, arguments.shape);
  std::copy_n(copy.destination, copy.ndim, arguments.destination_strides);
  std::copy_n(copy.source, copy.ndim, arguments.source_strides);
  const sycl::kernel kernel = copy_kernel(operation.device(), copy.ndim, itemsize);
  const size_t groups = (size_t(total) + copy_work_group - 1) / copy_work_group;
  operation.add([=, &operation](sycl::handler& handler) {
    Arguments(handler, operation.device()).add_struct(arguments).add(destination).add(source);
    handler.parallel_for(sycl::nd_range<1>(groups * copy_work_group, copy_work_group), kernel);
  });
}

// ---- overlap ---------------------------------------------------------------------------------

namespace {

struct Dimension {
  int64_t stride, extent;  // stride positive or zero
};

// The dimensions that matter, smallest stride first, and the lowest element that is reached.
std::vector<Dimension> normalised(const Tensor& tensor, int64_t& lowest) {
  std::vector<Dimension> dimensions;
  lowest = tensor.offset;
  for (int64_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] <= 1) continue;
    if (tensor.strides[i] < 0) lowest += (tensor.shape[i] - 1) * tensor.strides[i];
    dimensions.push_back({std::abs(tensor.strides[i]), tensor.shape[i]});
  }
  std::sort(dimensions.begin(), dimensions.end(),
            [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  return dimensions;
}

// Contiguous runs, equally far apart.
struct Runs {
  int64_t first, length, stride, count;
};

bool as_runs(const Tensor& tensor, Runs& runs) {
  int64_t lowest;
  auto dimensions = normalised(tensor, lowest);
  runs = {lowest, 1, 0, 1};
  auto next = dimensions.begin();
  if (next != dimensions.end() && next->stride == 1) runs.length = (next++)->extent;
  if (next != dimensions.end()) {
    runs.stride = next->stride;
    runs.count = (next++)->extent;
  }
  // Runs that go on at the same distance in the next dimension.
  for (; next != dimensions.end() && next->stride == runs.stride * runs.count; ++next)
    runs.count *= next->extent;
  return next == dimensions.end();
}

bool runs_overlap(Runs a, Runs b, bool& exact) {
  if (a.count == 1) a.stride = b.stride;
  if (b.count == 1) b.stride = a.stride;
  const int64_t stride = a.stride;
  exact = stride > 0 && stride == b.stride && a.first % stride + a.length <= stride &&
          b.first % stride + b.length <= stride;
  if (!exact) return true;
  const auto meet = [](int64_t x, int64_t x_length, int64_t y, int64_t y_length) {
    return x < y + y_length && y < x + x_length;
  };
  return meet(a.first % stride, a.length, b.first % stride, b.length) &&
         meet(a.first / stride, a.count, b.first / stride, b.count);
}

}  // namespace

bool may_overlap(const Tensor& a, const Tensor& b) {
  if (a.storage.get() != b.storage.get() || a.size == 0 || b.size == 0) return false;
  const auto reach = [](const Tensor& tensor, int64_t& first) {
    int64_t length = 1;
    for (const auto& dimension : normalised(tensor, first))
      length += dimension.stride * (dimension.extent - 1);
    return first + length;
  };
  int64_t a_first, b_first;
  const int64_t a_end = reach(a, a_first), b_end = reach(b, b_first);
  if (a_end <= b_first || b_end <= a_first) return false;
  Runs a_runs, b_runs;
  bool exact = false;
  if (as_runs(a, a_runs) && as_runs(b, b_runs)) {
    const bool overlap = runs_overlap(a_runs, b_runs, exact);
    if (exact) return overlap;
  }
  return true;
}

void check_writable(const Tensor& tensor, const char* name) {
  int64_t lowest, reach = 0;
  if (tensor.size == 0) return;
  for (const auto& dimension : normalised(tensor, lowest)) {
    if (dimension.stride <= reach)
      invalid(name,
              " has strides by which several elements share one address; it can't be written");
    reach += dimension.stride * (dimension.extent - 1);
  }
}

// ---- tensors ---------------------------------------------------------------------------------

namespace {

int64_t checked_size(int64_t ndim, const int64_t* shape) {
  if (ndim < 0 || ndim > FUNLIB_MAX_DIMS)
    invalid("a tensor has 0 to ", FUNLIB_MAX_DIMS, " dimensions, not ", ndim);
  if (ndim > 0) required(shape, "shape");
  int64_t size = 1, bounded = 1;
  for (int64_t i = 0; i < ndim; ++i) {
    if (shape[i] < 0) invalid("shape[", i, "] is ", shape[i], "; a dimension can't be negative");
    // Strides of empty tensors are computed too, so no product of extents may overflow.
    if (__builtin_mul_overflow(bounded, std::max<int64_t>(shape[i], 1), &bounded) ||
        bounded > (INT64_MAX >> 4))
      invalid("the shape has more elements than an address space");
    size *= shape[i];
  }
  return size;
}

Ref<Tensor> make_view(Tensor& base, int64_t ndim) {
  auto view = Ref<Tensor>::make();
  view->queue = base.queue;
  view->storage = base.storage;
  view->dtype = base.dtype;
  view->offset = base.offset;
  view->ndim = ndim;
  return view;
}

Label label_of(const char* operation, const Tensor& tensor) {
  Label label;
  label.operation = operation;
  label.dtype = tensor.type().name;
  label.extent_count = tensor.ndim;
  std::copy_n(tensor.shape, tensor.ndim, label.extents);
  return label;
}

void check_host_size(const Tensor& tensor, const void* host, int64_t nbytes) {
  if (nbytes != tensor.nbytes())
    invalid("nbytes is ", nbytes, " but the tensor (", tensor.shape_text(), ", ",
            tensor.type().name, ") has ", tensor.nbytes());
  if (nbytes > 0 && host == nullptr) invalid("host is NULL");
}

Ref<Event> fill(Tensor& tensor, const void* value) {
  Operation operation(tensor.queue, label_of("fill", tensor));
  operation.writes(tensor, "tensor");
  check_writable(tensor, "tensor");
  if (tensor.size == 0) return operation.finish();
  const int64_t itemsize = tensor.type().itemsize;
  Ref<Storage> one;  // a strided tensor is filled by copying one element to all places
  void* target = tensor.data();
  int64_t count = tensor.size;
  if (!tensor.contiguous) {
    one = operation.workspace(size_t(itemsize));
    target = one->data();
    count = 1;
  }
  uint64_t bits = 0;
  std::memcpy(&bits, value, size_t(itemsize));
  operation.add([=](sycl::handler& handler) {
    if (itemsize == 1)
      handler.fill(target, uint8_t(bits), size_t(count));
    else if (itemsize == 2)
      handler.fill(target, uint16_t(bits), size_t(count));
    else if (itemsize == 4)
      handler.fill(target, uint32_t(bits), size_t(count));
    else
      handler.fill(target, bits, size_t(count));
  });
  if (one) {
    const int64_t still[FUNLIB_MAX_DIMS] = {};
    copy_elements(operation, tensor.ndim, tensor.shape, itemsize, tensor.data(), tensor.strides,
                  one->data(), still);
  }
  return operation.finish();
}

Ref<Event> copy_from_host(Tensor& tensor, const void* host, bool serves_mapping = false) {
  Operation operation(tensor.queue, label_of("copy_from_host", tensor));
  operation.writes(tensor, "tensor");
  if (serves_mapping) operation.serve_mapping();
  check_writable(tensor, "tensor");
  if (tensor.size == 0) return operation.finish();
  Ref<Storage> packed;
  if (!tensor.contiguous) packed = operation.workspace(size_t(tensor.nbytes()));
  void* target = packed ? packed->data() : tensor.data();
  const size_t nbytes = size_t(tensor.nbytes());
  operation.add_copy(target, host, nbytes);
  if (packed) {
    int64_t strides[FUNLIB_MAX_DIMS];
    contiguous_strides(tensor.ndim, tensor.shape, strides);
    copy_elements(operation, tensor.ndim, tensor.shape, tensor.type().itemsize, tensor.data(),
                  tensor.strides, packed->data(), strides);
  }
  return operation.finish();
}

Ref<Event> copy_to_host(Tensor& tensor, void* host, bool serves_mapping = false) {
  Operation operation(tensor.queue, label_of("copy_to_host", tensor));
  operation.reads(tensor, "tensor");
  if (serves_mapping) operation.serve_mapping();
  if (tensor.size == 0) return operation.finish();
  Ref<Storage> packed;
  if (!tensor.contiguous) {
    packed = operation.workspace(size_t(tensor.nbytes()));
    int64_t strides[FUNLIB_MAX_DIMS];
    contiguous_strides(tensor.ndim, tensor.shape, strides);
    copy_elements(operation, tensor.ndim, tensor.shape, tensor.type().itemsize, packed->data(),
                  strides, tensor.data(), tensor.strides);
  }
  const void* source = packed ? packed->data() : tensor.data();
  const size_t nbytes = size_t(tensor.nbytes());
  operation.add_copy(host, source, nbytes);
  return operation.finish();
}

Ref<Event> copy(Tensor& destination, Tensor& source) {
  if (destination.dtype != source.dtype)
    fail(FUNLIB_ERROR_TYPE, "source is ", source.type().name, " but destination is ",
         destination.type().name);
  if (destination.ndim != source.ndim ||
      !std::equal(source.shape, source.shape + source.ndim, destination.shape))
    invalid("source has shape ", source.shape_text(), " but destination has ",
            destination.shape_text());
  if (may_overlap(destination, source)) invalid("destination overlaps source");
  check_writable(destination, "destination");
  Operation operation(destination.queue, label_of("copy", destination));
  operation.reads(source, "source");
  operation.writes(destination, "destination");
  copy_elements(operation, source.ndim, source.shape, source.type().itemsize, destination.data(),
                destination.strides, source.data(), source.strides);
  return operation.finish();
}

// A pinned host buffer that goes back to its pool unless it is handed on.
struct Staging {
  Staging(Device& device, size_t bytes, void* data) : device(device), bytes(bytes), data(data) {}
  ~Staging() { device.staging().give_back(data, bytes); }
  Device& device;
  size_t bytes;
  void* data;
};

funlib_mapping map(Tensor& tensor, funlib_map_mode mode) {
  if (mode < FUNLIB_MAP_READ || mode > FUNLIB_MAP_READ_WRITE) invalid("unknown mode ", int(mode));
  enter_runtime();
  const bool writes = (mode & FUNLIB_MAP_WRITE) != 0;
  if (writes) check_writable(tensor, "tensor");
  Device& device = tensor.queue->device;
  Storage& storage = *tensor.storage;
  funlib_mapping mapping{};
  mapping.zero_copy = device.info().host_accessible;
  const size_t bytes = mapping.zero_copy ? 0 : size_t(tensor.nbytes());
  Staging staging(device, bytes, device.staging().allocate(bytes));
  mapping.data = mapping.zero_copy ? tensor.data() : staging.data;
  if (mapping.zero_copy)
    std::copy_n(tensor.strides, tensor.ndim, mapping.strides);
  else
    contiguous_strides(tensor.ndim, tensor.shape, mapping.strides);
  // Open first, wait then: what is submitted from now on is refused.
  Ref<Event> written;
  std::vector<sycl::event> events;
  {
    std::lock_guard<std::mutex> lock(device.submission());
    storage.open_mapping({writes, mapping.data, !mapping.zero_copy, Ref<Tensor>::share(&tensor)});
    written = storage.last_write();
    events = storage.events();
  }
  try {
    if (written) written->wait();
    for (auto& event : events) event.wait_and_throw();
    if (!mapping.zero_copy && (mode & FUNLIB_MAP_READ) != 0)
      copy_to_host(tensor, mapping.data, true)->wait();
  } catch (...) {
    std::lock_guard<std::mutex> lock(device.submission());
    storage.close_mapping(mapping.data);
    throw;
  }
  staging.data = nullptr;
  return mapping;
}

// Ends a mapping, which may be of another view of the same allocation than `any`.
void unmap(Tensor& any, void* data) {
  enter_runtime();
  Device& device = any.queue->device;
  Storage& storage = *any.storage;
  Storage::Mapping mapping;
  {
    std::lock_guard<std::mutex> lock(device.submission());
    mapping = storage.find_mapping(data);
  }
  const auto close = [&] {
    std::lock_guard<std::mutex> lock(device.submission());
    storage.close_mapping(data);
  };
  const size_t bytes = mapping.staged ? size_t(mapping.tensor->nbytes()) : 0;
  Staging staging(device, bytes, mapping.staged ? mapping.data : nullptr);
  try {
    if (mapping.staged && mapping.writes) copy_from_host(*mapping.tensor, data, true)->wait();
  } catch (...) {
    close();
    throw;
  }
  close();
}

void hand_over(Ref<Event> made, funlib_event** event) {
  if (event != nullptr) *event = made.detach();
}

}  // namespace

Ref<Tensor> create_tensor(Ref<Queue> queue, funlib_dtype dtype, int64_t ndim,
                          const int64_t* shape) {
  const Dtype& type = dtype_of(dtype);
  const int64_t size = checked_size(ndim, shape);
  if (type.needs_fp64 && !queue->device.info().has_fp64)
    fail(FUNLIB_ERROR_UNSUPPORTED, queue->device.info().name, " has no ", type.name);
  auto tensor = Ref<Tensor>::make();
  tensor->queue = queue;
  tensor->storage = Ref<Storage>::make(std::move(queue), size_t(size) * size_t(type.itemsize));
  tensor->dtype = dtype;
  tensor->ndim = ndim;
  std::copy_n(shape, ndim, tensor->shape);
  contiguous_strides(ndim, shape, tensor->strides);
  tensor->summarise();
  return tensor;
}

}  // namespace funlib

using namespace funlib;

void* funlib_tensor::data() const {
  if (size == 0) return nullptr;
  return static_cast<char*>(storage->data()) + offset * type().itemsize;
}

void funlib_tensor::summarise() {
  size = 1;
  for (int64_t i = 0; i < ndim; ++i) size *= shape[i];
  contiguous = true;
  int64_t stride = 1;
  for (int64_t i = ndim - 1; i >= 0 && size > 0; --i) {
    if (shape[i] != 1 && strides[i] != stride) contiguous = false;
    stride *= shape[i];
  }
}

std::string funlib_tensor::shape_text() const {
  std::string text = "(";
  for (int64_t i = 0; i < ndim; ++i) text += concat(i == 0 ? "" : ", ", shape[i]);
  return text + (ndim == 1 ? ",)" : ")");
}

extern "C" {

funlib_status funlib_dtype_count(int64_t* count) {
  return guarded([&] { required(count, "count") = dtype_count; });
}

funlib_status funlib_dtype_get_info(funlib_dtype dtype, funlib_dtype_info* info) {
  return guarded([&] {
    const Dtype& type = dtype_of(dtype);
    required(info, "info") = {type.name, type.itemsize};
  });
}

funlib_status funlib_tensor_create(funlib_queue* queue, funlib_dtype dtype, int64_t ndim,
                                   const int64_t* shape, funlib_tensor** tensor) {
  return guarded([&] {
    auto& target = required(tensor, "tensor");
    enter_runtime();
    auto owner = queue != nullptr ? Ref<Queue>::share(queue) : get_queue(nullptr);
    target = create_tensor(std::move(owner), dtype, ndim, shape).detach();
  });
}

funlib_status funlib_tensor_view(funlib_tensor* base, int64_t ndim, const int64_t* shape,
                                 const int64_t* strides, int64_t offset, funlib_tensor** tensor) {
  return guarded([&] {
    auto& source = required(base, "base");
    auto& target = required(tensor, "tensor");
    const int64_t size = checked_size(ndim, shape);
    if (ndim > 0) required(strides, "strides");
    auto view = make_view(source, ndim);
    std::copy_n(shape, ndim, view->shape);
    std::copy_n(strides, ndim, view->strides);
    const int64_t elements = int64_t(source.storage->bytes()) / source.type().itemsize;
    int64_t low = 0, high = 0;
    bool overflow = __builtin_add_overflow(source.offset, offset, &view->offset);
    low = high = view->offset;
    for (int64_t i = 0; i < ndim && size > 0; ++i) {
      int64_t reach;
      overflow |= __builtin_mul_overflow(shape[i] - 1, strides[i], &reach);
      int64_t& end = reach < 0 ? low : high;
      overflow |= __builtin_add_overflow(end, reach, &end);
    }
    if (overflow || (size > 0 && (low < 0 || high >= elements)))
      invalid("the view reaches outside the allocation of ", elements, " elements");
    view->summarise();
    target = view.detach();
  });
}

funlib_status funlib_tensor_reshape(funlib_tensor* base, int64_t ndim, const int64_t* shape,
                                    funlib_tensor** tensor) {
  return guarded([&] {
    auto& source = required(base, "base");
    auto& target = required(tensor, "tensor");
    const int64_t size = checked_size(ndim, shape);
    auto view = make_view(source, ndim);
    std::copy_n(shape, ndim, view->shape);
    contiguous_strides(ndim, shape, view->strides);
    view->summarise();
    if (size != source.size)
      invalid("can't reshape ", source.shape_text(), " (", source.size, " elements) to ",
              view->shape_text(), " (", size, " elements)");
    if (!source.contiguous)
      invalid(
          "can't reshape a tensor that is not C-contiguous without a copy; call contiguous() "
          "first");
    target = view.detach();
  });
}

funlib_status funlib_tensor_transpose(funlib_tensor* base, const int64_t* axes,
                                      funlib_tensor** tensor) {
  return guarded([&] {
    auto& source = required(base, "base");
    auto& target = required(tensor, "tensor");
    auto view = make_view(source, source.ndim);
    bool seen[FUNLIB_MAX_DIMS] = {};
    for (int64_t i = 0; i < source.ndim; ++i) {
      const int64_t axis = axes != nullptr ? axes[i] : source.ndim - 1 - i;
      if (axis < 0 || axis >= source.ndim || seen[axis])
        invalid("axes is no permutation of 0 .. ", source.ndim - 1);
      seen[axis] = true;
      view->shape[i] = source.shape[axis];
      view->strides[i] = source.strides[axis];
    }
    view->summarise();
    target = view.detach();
  });
}

funlib_status funlib_tensor_retain(funlib_tensor* tensor) {
  return guarded([&] { required(tensor, "tensor").retain(); });
}

void funlib_tensor_release(funlib_tensor* tensor) {
  if (tensor != nullptr && !forked_after_start()) tensor->release();
}

funlib_status funlib_tensor_get_info(funlib_tensor* tensor, funlib_tensor_info* info) {
  return guarded([&] {
    const auto& source = required(tensor, "tensor");
    required(info, "info") = {source.dtype,
                              source.ndim,
                              source.shape,
                              source.strides,
                              source.size,
                              source.nbytes(),
                              source.contiguous ? 1 : 0,
                              source.queue->device.index()};
  });
}

funlib_status funlib_tensor_get_queue(funlib_tensor* tensor, funlib_queue** queue) {
  return guarded([&] {
    const auto& source = required(tensor, "tensor");
    auto& target = required(queue, "queue");
    target = Ref<Queue>(source.queue).detach();
  });
}

funlib_status funlib_tensor_data(funlib_tensor* tensor, void** data) {
  return guarded([&] {
    const auto& source = required(tensor, "tensor");
    required(data, "data") = source.data();
  });
}

funlib_status funlib_tensor_get_event(funlib_tensor* tensor, funlib_event** event) {
  return guarded([&] {
    auto& source = required(tensor, "tensor");
    auto& target = required(event, "event");
    std::lock_guard<std::mutex> lock(source.queue->device.submission());
    target = source.storage->last_write().detach();
  });
}

funlib_status funlib_tensor_fill(funlib_tensor* tensor, const void* value, funlib_event** event) {
  return guarded([&] {
    auto& target = required(tensor, "tensor");
    hand_over(fill(target, &required(static_cast<const char*>(value), "value")), event);
  });
}

funlib_status funlib_tensor_copy_from_host(funlib_tensor* tensor, const void* host, int64_t nbytes,
                                           funlib_event** event) {
  return guarded([&] {
    auto& target = required(tensor, "tensor");
    check_host_size(target, host, nbytes);
    hand_over(copy_from_host(target, host), event);
  });
}

funlib_status funlib_tensor_copy_to_host(funlib_tensor* tensor, void* host, int64_t nbytes,
                                         funlib_event** event) {
  return guarded([&] {
    auto& source = required(tensor, "tensor");
    check_host_size(source, host, nbytes);
    hand_over(copy_to_host(source, host), event);
  });
}

funlib_status funlib_tensor_copy(funlib_tensor* destination, funlib_tensor* source,
                                 funlib_event** event) {
  return guarded([&] {
    auto& to = required(destination, "destination");
    hand_over(copy(to, required(source, "source")), event);
  });
}

funlib_status funlib_tensor_map(funlib_tensor* tensor, funlib_map_mode mode,
                                funlib_mapping* mapping) {
  return guarded([&] {
    auto& source = required(tensor, "tensor");
    auto& target = required(mapping, "mapping");
    target = map(source, mode);
  });
}

funlib_status funlib_tensor_unmap(funlib_tensor* tensor, void* data) {
  return guarded([&] { unmap(required(tensor, "tensor"), data); });
}

}  // extern "C"
