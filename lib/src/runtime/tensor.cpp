#include "runtime/tensor.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "program/program.hpp"

namespace funlib {

// ---- storage ---------------------------------------------------------------------------------

Storage::Storage(Ref<Queue> queue, size_t bytes)
    : queue_(std::move(queue)), bytes_(bytes), block_(queue_->device.pool().allocate(bytes)) {}

Storage::~Storage() { queue_->device.pool().give_back(std::move(block_)); }

void Storage::check_access_locked(bool writes) const {
  for (const auto& mapping : mappings_)
    if (writes || mapping.writes)
      fail(FUNLIB_ERROR_BUSY, "the tensor's memory is open in a ",
           mapping.writes ? "writable" : "read-only", " host view; release the view before ",
           writes ? "writing" : "using", " the tensor");
}

void Storage::check_access(bool writes) {
  std::lock_guard<std::mutex> lock(mutex_);
  check_access_locked(writes);
}

void Storage::add_dependencies(const Queue& queue, bool writes, std::vector<sycl::event>& events) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& use : block_.uses)
    if (use.queue_id != queue.id && (writes || use.writes)) events.push_back(use.event);
}

void Storage::record(const Queue& queue, bool writes, const Ref<Event>& event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (writes) last_write_ = event;
  if (block_.data == nullptr) return;
  for (auto& use : block_.uses) {
    if (use.queue_id == queue.id && use.writes == writes) {
      use.event = event->last;
      return;
    }
  }
  block_.uses.push_back({queue.id, writes, event->last});
}

Ref<Event> Storage::last_write() {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_write_;
}

void Storage::wait() {
  std::vector<Use> uses;
  Ref<Event> written;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    uses = block_.uses;
    written = last_write_;
  }
  if (written) written->wait();
  for (auto& use : uses) use.event.wait_and_throw();
}

void Storage::open_mapping(bool writes, void* data, void* staging) {
  std::lock_guard<std::mutex> lock(mutex_);
  check_access_locked(writes);
  mappings_.push_back({writes, data, staging});
}

Storage::Mapping Storage::close_mapping(void* data) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find_if(mappings_.begin(), mappings_.end(),
                                  [&](const Mapping& mapping) { return mapping.data == data; });
  if (found == mappings_.end())
    invalid("data is not the address of an open mapping of this tensor");
  const Mapping mapping = *found;
  mappings_.erase(found);
  return mapping;
}

// ---- operations ------------------------------------------------------------------------------

Operation::Operation(Ref<Queue> queue, const Label& label)
    : queue_(std::move(queue)), label_(label) {
  enter_runtime();
}

Operation::~Operation() {
  if (submitted_ && !finished_) finish();
}

void Operation::access(const Tensor& tensor, const char* name, bool writes) {
  if (&tensor.queue->device != &queue_->device)
    invalid(name, " is on ", tensor.queue->device.info().name, " (",
            tensor.queue->device.info().backend, ", queue \"", tensor.queue->name,
            "\"), which queue \"", queue_->name, "\" on ", queue_->device.info().name, " (",
            queue_->device.info().backend,
            ") can't reach; copy it over through the host (to_host, then from_numpy on the other "
            "queue)");
  tensor.storage->check_access(writes);
  tensor.storage->add_dependencies(*queue_, writes, dependencies_);
  accesses_.push_back({tensor.storage, writes});
}

Ref<Storage> Operation::workspace(size_t bytes) {
  auto storage = Ref<Storage>::make(queue_, bytes);
  storage->add_dependencies(*queue_, true, dependencies_);
  accesses_.push_back({storage, true});
  return storage;
}

Ref<Event> Operation::finish() {
  finished_ = true;
  auto event = Ref<Event>::make(queue_, label_, std::move(earlier_), last_, submitted_);
  for (auto& access : accesses_) access.storage->record(*queue_, access.writes, event);
  return event;
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
    operation.submit(
        [&](sycl::handler& handler) { handler.memcpy(destination, source, total * itemsize); });
    return;
  }
  CopyStridedArguments arguments{};
  arguments.total = total;
  std::copy_n(copy.shape, copy.ndim, arguments.shape);
  std::copy_n(copy.destination, copy.ndim, arguments.destination_strides);
  std::copy_n(copy.source, copy.ndim, arguments.source_strides);
  const sycl::kernel kernel = copy_kernel(operation.device(), copy.ndim, itemsize);
  const size_t groups = (size_t(total) + copy_work_group - 1) / copy_work_group;
  operation.submit([&](sycl::handler& handler) {
    handler.set_args(arguments, destination, source);
    handler.parallel_for(sycl::nd_range<1>(groups * copy_work_group, copy_work_group), kernel);
  });
}

// ---- overlap ---------------------------------------------------------------------------------

std::pair<const char*, const char*> extent(const Tensor& tensor) {
  if (tensor.size == 0) return {nullptr, nullptr};
  int64_t low = 0, high = 0;
  for (int64_t i = 0; i < tensor.ndim; ++i) {
    const int64_t reach = (tensor.shape[i] - 1) * tensor.strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const char* first = static_cast<const char*>(tensor.data());
  const int64_t itemsize = tensor.type().itemsize;
  return {first + low * itemsize, first + (high + 1) * itemsize};
}

bool may_overlap(const Tensor& a, const Tensor& b) {
  if (a.storage.get() != b.storage.get()) return false;
  const auto [a_first, a_last] = extent(a);
  const auto [b_first, b_last] = extent(b);
  if (a_first == nullptr || b_first == nullptr || a_last <= b_first || b_last <= a_first)
    return false;
  // Column blocks of one matrix interleave without sharing an element.
  if (a.ndim == 2 && b.ndim == 2 && a.dtype == b.dtype && a.strides[1] == 1 && b.strides[1] == 1 &&
      a.strides[0] == b.strides[0] && a.strides[0] > 0) {
    const int64_t leading = a.strides[0];
    const int64_t a_column = a.offset % leading, b_column = b.offset % leading;
    const bool whole_rows = a_column + a.shape[1] <= leading && b_column + b.shape[1] <= leading;
    if (whole_rows) return a_column < b_column + b.shape[1] && b_column < a_column + a.shape[1];
  }
  return true;
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
    size *= shape[i];
    // Strides of empty tensors are computed too, so no product of extents may overflow.
    if (__builtin_mul_overflow(bounded, std::max<int64_t>(shape[i], 1), &bounded) ||
        bounded > (INT64_MAX >> 4))
      invalid("the shape has more elements than an address space");
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
  operation.submit([&](sycl::handler& handler) {
    if (itemsize == 8) {
      uint64_t bits;
      std::memcpy(&bits, value, sizeof bits);
      handler.fill(target, bits, size_t(count));
    } else {
      uint32_t bits;
      std::memcpy(&bits, value, sizeof bits);
      handler.fill(target, bits, size_t(count));
    }
  });
  if (one) {
    const int64_t still[FUNLIB_MAX_DIMS] = {};
    copy_elements(operation, tensor.ndim, tensor.shape, itemsize, tensor.data(), tensor.strides,
                  one->data(), still);
  }
  return operation.finish();
}

Ref<Event> copy_from_host(Tensor& tensor, const void* host) {
  Operation operation(tensor.queue, label_of("copy_from_host", tensor));
  operation.writes(tensor, "tensor");
  if (tensor.size == 0) return operation.finish();
  Ref<Storage> packed;
  if (!tensor.contiguous) packed = operation.workspace(size_t(tensor.nbytes()));
  void* target = packed ? packed->data() : tensor.data();
  operation.submit(
      [&](sycl::handler& handler) { handler.memcpy(target, host, size_t(tensor.nbytes())); });
  if (packed) {
    int64_t strides[FUNLIB_MAX_DIMS];
    contiguous_strides(tensor.ndim, tensor.shape, strides);
    copy_elements(operation, tensor.ndim, tensor.shape, tensor.type().itemsize, tensor.data(),
                  tensor.strides, packed->data(), strides);
  }
  return operation.finish();
}

Ref<Event> copy_to_host(Tensor& tensor, void* host) {
  Operation operation(tensor.queue, label_of("copy_to_host", tensor));
  operation.reads(tensor, "tensor");
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
  operation.submit(
      [&](sycl::handler& handler) { handler.memcpy(host, source, size_t(tensor.nbytes())); });
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
  Operation operation(destination.queue, label_of("copy", destination));
  operation.reads(source, "source");
  operation.writes(destination, "destination");
  copy_elements(operation, source.ndim, source.shape, source.type().itemsize, destination.data(),
                destination.strides, source.data(), source.strides);
  return operation.finish();
}

// A pinned host buffer that frees itself unless it is handed on.
struct Staging {
  Staging(Device& device, size_t bytes) : device(device) {
    if (bytes == 0) return;
    data = sycl::malloc_host(bytes, device.context());
    if (data == nullptr)
      fail(FUNLIB_ERROR_OUT_OF_MEMORY, "no pinned host memory for a staging buffer of ", bytes,
           " bytes");
  }
  ~Staging() {
    if (data != nullptr) sycl::free(data, device.context());
  }
  Device& device;
  void* data = nullptr;
};

funlib_mapping map(Tensor& tensor, funlib_map_mode mode) {
  if (mode < FUNLIB_MAP_READ || mode > FUNLIB_MAP_READ_WRITE) invalid("unknown mode ", int(mode));
  enter_runtime();
  const bool writes = (mode & FUNLIB_MAP_WRITE) != 0;
  Storage& storage = *tensor.storage;
  storage.check_access(writes);
  funlib_mapping mapping{};
  if (tensor.queue->device.info().host_accessible) {
    storage.wait();
    mapping.data = tensor.data();
    mapping.zero_copy = 1;
    std::copy_n(tensor.strides, tensor.ndim, mapping.strides);
    storage.open_mapping(writes, mapping.data, nullptr);
    return mapping;
  }
  Staging staging(tensor.queue->device, size_t(tensor.nbytes()));
  if ((mode & FUNLIB_MAP_READ) != 0)
    copy_to_host(tensor, staging.data)->wait();
  else
    storage.wait();
  mapping.data = staging.data;
  contiguous_strides(tensor.ndim, tensor.shape, mapping.strides);
  storage.open_mapping(writes, mapping.data, staging.data);
  staging.data = nullptr;
  return mapping;
}

void unmap(Tensor& tensor, void* data) {
  enter_runtime();
  const Storage::Mapping mapping = tensor.storage->close_mapping(data);
  if (mapping.staging == nullptr) return;
  Staging staging(tensor.queue->device, 0);
  staging.data = mapping.staging;
  if (mapping.writes) copy_from_host(tensor, staging.data)->wait();
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
    required(event, "event") = source.storage->last_write().detach();
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
