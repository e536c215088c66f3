// Programs (PTX or a cubin, which the driver makes into a module) and kernels.
#include <cstring>

#include "functions.hpp"
#include "objects.hpp"

using namespace cuda_adapter;

ur_program_handle_t_::~ur_program_handle_t_() {
  if (module == nullptr) return;
  // The context may be gone at the end of the process.
  guarded([&] {
    const Current current(device);
    driver().module_unload(module);
  });
}

namespace cuda_adapter {
namespace {

FunctionHandle find_function(ModuleHandle module, const std::string& name) {
  FunctionHandle function = nullptr;
  const Result result = driver().module_function(&function, module, name.c_str());
  if (result == not_found) return nullptr;
  check(result, "cuModuleGetFunction");
  return function;
}

}  // namespace
}  // namespace cuda_adapter

ur_kernel_handle_t_::ur_kernel_handle_t_(ur_program_handle_t program, const char* name)
    : program(program), name(name) {
  const Current current(program->device);
  function = find_function(program->module, name);
  require(function != nullptr, UR_RESULT_ERROR_INVALID_KERNEL_NAME);
  // Not asked for in vain, which tools that watch the driver would report.
  const std::string shifted = this->name + "_with_offset";
  if (program->binary.find(shifted) != std::string::npos)
    with_offset = find_function(program->module, shifted);
  const auto size = program->work_group_sizes.find(name);
  if (size != program->work_group_sizes.end()) work_group_size = size->second;
  const auto most = program->max_work_group_sizes.find(name);
  if (most != program->max_work_group_sizes.end()) max_work_group_size = most->second;
  const auto linear = program->max_linear_sizes.find(name);
  if (linear != program->max_linear_sizes.end()) max_linear_size = linear->second;
  static_local_bytes = attribute(function_static_local_bytes);
}

int ur_kernel_handle_t_::attribute(int number) const {
  int value = 0;
  check(driver().function_attribute(&value, number, function), "cuFuncGetAttribute");
  return value;
}

namespace cuda_adapter {
namespace {

// Metadata are named "kernel@tag". Their arrays begin with a 64-bit size.
constexpr size_t size_field = 8;

std::array<size_t, 3> sizes_of(const ur_program_metadata_t& entry) {
  std::array<size_t, 3> sizes{1, 1, 1};
  const auto* values = static_cast<const char*>(entry.value.pData) + size_field;
  require(entry.size >= size_field + sizeof(uint32_t), UR_RESULT_ERROR_INVALID_VALUE);
  const size_t count = (entry.size - size_field) / sizeof(uint32_t);
  for (size_t i = 0; i < count && i < sizes.size(); ++i) {
    uint32_t value;
    std::memcpy(&value, values + i * sizeof value, sizeof value);
    sizes[i] = value;
  }
  return sizes;
}

void read_metadata(ur_program_handle_t_& program, const ur_program_metadata_t& entry) {
  const std::string name = entry.pName;
  const size_t at = name.rfind('@');
  if (at == std::string::npos) return;
  const std::string subject = name.substr(0, at), tag = name.substr(at + 1);
  if (tag == "reqd_work_group_size") {
    program.work_group_sizes[subject] = sizes_of(entry);
  } else if (tag == "max_work_group_size") {
    program.max_work_group_sizes[subject] = sizes_of(entry);
  } else if (tag == "max_linear_work_group_size") {
    program.max_linear_sizes[subject] = size_t(entry.value.data64);
  } else if (tag == "global_id_mapping") {
    require(entry.size >= size_field, UR_RESULT_ERROR_INVALID_VALUE);
    const auto* text = static_cast<const char*>(entry.value.pData) + size_field;
    program.globals[subject] = std::string(text, entry.size - size_field);
  }
}

// Says in the PTX how many work-items the work-groups of a kernel have, which the compiler leaves out:
// registers are given out by it.
void bound_work_groups(ur_program_handle_t_& program) {
  for (const auto& [name, size] : program.work_group_sizes) {
    const size_t entry = program.binary.find(".entry " + name + "(");
    const size_t body = program.binary.find("\n{", entry);
    if (entry == std::string::npos || body == std::string::npos) continue;
    program.binary.insert(
        body, "\n.maxntid " + std::to_string(size[0] * size[1] * size[2]) + "\n.minnctapersm 1");
  }
}

ur_result_t program_create(ur_context_handle_t context, uint32_t count, ur_device_handle_t* devices,
                           size_t* sizes, const uint8_t** binaries,
                           const ur_program_properties_t* properties,
                           ur_program_handle_t* program) {
  return guarded([&] {
    require(devices != nullptr && sizes != nullptr && binaries != nullptr && program != nullptr,
            UR_RESULT_ERROR_INVALID_NULL_POINTER);
    require(count == 1, UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
    require(context->has(devices[0]), UR_RESULT_ERROR_INVALID_DEVICE);
    require(sizes[0] > 0, UR_RESULT_ERROR_INVALID_SIZE);
    auto made = std::make_unique<ur_program_handle_t_>(context, devices[0]);
    if (properties != nullptr)
      for (uint32_t i = 0; i < properties->count; ++i)
        read_metadata(*made, properties->pMetadatas[i]);
    // A copy with a zero behind it, where the driver wants the end of a text.
    made->binary.assign(reinterpret_cast<const char*>(binaries[0]), sizes[0]);
    bound_work_groups(*made);
    *program = made.release();
  });
}

void build(ur_program_handle_t_& program, const char* options, ur_program_binary_type_t type) {
  if (program.module != nullptr) return;
  program.options = options != nullptr ? options : "";
  const Current current(program.device);
  std::vector<char> information(16384), errors(16384);
  int names[] = {jit_info_log, jit_info_log_bytes, jit_error_log, jit_error_log_bytes};
  void* values[] = {information.data(), reinterpret_cast<void*>(information.size()), errors.data(),
                    reinterpret_cast<void*>(errors.size())};
  const Result result =
      driver().module_load(&program.module, program.binary.data(), 4, names, values);
  program.log = std::string(errors.data()) + information.data();
  if (result == success) {
    program.status = UR_PROGRAM_BUILD_STATUS_SUCCESS;
    program.type = type;
    return;
  }
  program.status = UR_PROGRAM_BUILD_STATUS_ERROR;
  program.module = nullptr;
  if (result == out_of_memory) fail(UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
  const char* text = nullptr;
  driver().error_text(result, &text);
  if (text != nullptr) program.log += std::string(program.log.empty() ? "" : "\n") + text;
  fail(UR_RESULT_ERROR_PROGRAM_BUILD_FAILURE);
}

ur_result_t program_build(ur_context_handle_t, ur_program_handle_t program, const char* options) {
  return guarded([&] { build(*program, options, UR_PROGRAM_BINARY_TYPE_EXECUTABLE); });
}
ur_result_t program_build_for(ur_program_handle_t program, uint32_t count,
                              ur_device_handle_t* devices, ur_exp_program_flags_t,
                              const char* options) {
  return guarded([&] {
    require(count == 1 && devices[0] == program->device, UR_RESULT_ERROR_INVALID_DEVICE);
    build(*program, options, UR_PROGRAM_BINARY_TYPE_EXECUTABLE);
  });
}
ur_result_t program_compile(ur_context_handle_t, ur_program_handle_t program, const char* options) {
  return guarded([&] { build(*program, options, UR_PROGRAM_BINARY_TYPE_COMPILED_OBJECT); });
}
ur_result_t program_compile_for(ur_program_handle_t program, uint32_t count,
                                ur_device_handle_t* devices, ur_exp_program_flags_t,
                                const char* options) {
  return guarded([&] {
    require(count == 1 && devices[0] == program->device, UR_RESULT_ERROR_INVALID_DEVICE);
    build(*program, options, UR_PROGRAM_BINARY_TYPE_COMPILED_OBJECT);
  });
}

ur_result_t program_info(ur_program_handle_t program, ur_program_info_t what, size_t size,
                         void* value, size_t* needed) {
  return guarded([&] {
    const Answer answer(size, value, needed);
    switch (what) {
      case UR_PROGRAM_INFO_REFERENCE_COUNT:
        return answer(uint32_t(program->references));
      case UR_PROGRAM_INFO_CONTEXT:
        return answer(program->context.get());
      case UR_PROGRAM_INFO_NUM_DEVICES:
        return answer(uint32_t(1));
      case UR_PROGRAM_INFO_DEVICES:
        return answer(program->device);
      case UR_PROGRAM_INFO_IL:
        return answer.bytes(nullptr, 0);
      case UR_PROGRAM_INFO_BINARY_SIZES:
        return answer(program->binary.size());
      case UR_PROGRAM_INFO_BINARIES: {
        // Unlike other answers: the caller gives the addresses of buffers.
        if (needed != nullptr) *needed = sizeof(void*);
        if (value != nullptr && *static_cast<void**>(value) != nullptr)
          std::memcpy(*static_cast<void**>(value), program->binary.data(), program->binary.size());
        return;
      }
      default:
        fail(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
    }
  });
}

ur_result_t program_build_info(ur_program_handle_t program, ur_device_handle_t,
                               ur_program_build_info_t what, size_t size, void* value,
                               size_t* needed) {
  return guarded([&] {
    const Answer answer(size, value, needed);
    switch (what) {
      case UR_PROGRAM_BUILD_INFO_STATUS:
        return answer(program->status);
      case UR_PROGRAM_BUILD_INFO_OPTIONS:
        return answer.text(program->options);
      case UR_PROGRAM_BUILD_INFO_LOG:
        return answer.text(program->log);
      case UR_PROGRAM_BUILD_INFO_BINARY_TYPE:
        return answer(program->type);
      default:
        fail(UR_RESULT_ERROR_INVALID_ENUMERATION);
    }
  });
}

ur_result_t program_native(ur_program_handle_t program, ur_native_handle_t* native) {
  return guarded([&] { *native = reinterpret_cast<ur_native_handle_t>(program->module); });
}

ur_result_t program_global(ur_device_handle_t, ur_program_handle_t program, const char* name,
                           size_t* size, void** address) {
  return guarded([&] {
    require(program->module != nullptr, UR_RESULT_ERROR_INVALID_PROGRAM_EXECUTABLE);
    const auto mapped = program->globals.find(name);
    const std::string& symbol = mapped != program->globals.end() ? mapped->second : name;
    const Current current(program->device);
    DevicePointer pointer = 0;
    size_t bytes = 0;
    const Result result = driver().module_global(&pointer, &bytes, program->module, symbol.c_str());
    require(result != not_found, UR_RESULT_ERROR_INVALID_VALUE);
    check(result, "cuModuleGetGlobal");
    if (size != nullptr) *size = bytes;
    if (address != nullptr) *address = reinterpret_cast<void*>(pointer);
  });
}

ur_result_t kernel_create(ur_program_handle_t program, const char* name,
                          ur_kernel_handle_t* kernel) {
  return guarded([&] {
    require(name != nullptr && kernel != nullptr, UR_RESULT_ERROR_INVALID_NULL_POINTER);
    require(program->module != nullptr, UR_RESULT_ERROR_INVALID_PROGRAM_EXECUTABLE);
    *kernel = new ur_kernel_handle_t_(program, name);
  });
}

ur_result_t kernel_info(ur_kernel_handle_t kernel, ur_kernel_info_t what, size_t size, void* value,
                        size_t* needed) {
  return guarded([&] {
    const Answer answer(size, value, needed);
    const Current current(kernel->program->device);
    switch (what) {
      case UR_KERNEL_INFO_FUNCTION_NAME:
        return answer.text(kernel->name);
      case UR_KERNEL_INFO_NUM_ARGS:
        // Only known to the caller, who gives all of them with each launch.
        return answer(uint32_t(0));
      case UR_KERNEL_INFO_REFERENCE_COUNT:
        return answer(uint32_t(kernel->references));
      case UR_KERNEL_INFO_CONTEXT:
        return answer(kernel->program->context.get());
      case UR_KERNEL_INFO_PROGRAM:
        return answer(kernel->program.get());
      case UR_KERNEL_INFO_ATTRIBUTES:
        return answer.text("");
      case UR_KERNEL_INFO_NUM_REGS:
        return answer(uint32_t(kernel->attribute(function_registers)));
      case UR_KERNEL_INFO_SPILL_MEM_SIZE:
        return answer(uint32_t(kernel->attribute(function_private_bytes)));
      default:
        fail(UR_RESULT_ERROR_INVALID_ENUMERATION);
    }
  });
}

ur_result_t kernel_group_info(ur_kernel_handle_t kernel, ur_device_handle_t device,
                              ur_kernel_group_info_t what, size_t size, void* value,
                              size_t* needed) {
  return guarded([&] {
    const Answer answer(size, value, needed);
    const Current current(kernel->program->device);
    switch (what) {
      case UR_KERNEL_GROUP_INFO_GLOBAL_WORK_SIZE: {
        std::array<size_t, 3> most;
        const int blocks[] = {attribute_max_block_x, attribute_max_block_y, attribute_max_block_z};
        const int grids[] = {attribute_max_grid_x, attribute_max_grid_y, attribute_max_grid_z};
        for (int i = 0; i < 3; ++i)
          most[size_t(i)] =
              size_t(device->attribute(blocks[i])) * size_t(device->attribute(grids[i]));
        return answer(most);
      }
      case UR_KERNEL_GROUP_INFO_WORK_GROUP_SIZE:
        return answer(size_t(kernel->attribute(function_max_threads)));
      case UR_KERNEL_GROUP_INFO_COMPILE_WORK_GROUP_SIZE:
        return answer(kernel->work_group_size);
      case UR_KERNEL_GROUP_INFO_COMPILE_MAX_WORK_GROUP_SIZE:
        return answer(kernel->max_work_group_size);
      case UR_KERNEL_GROUP_INFO_COMPILE_MAX_LINEAR_WORK_GROUP_SIZE:
        return answer(kernel->max_linear_size);
      case UR_KERNEL_GROUP_INFO_LOCAL_MEM_SIZE:
        return answer(size_t(kernel->static_local_bytes));
      case UR_KERNEL_GROUP_INFO_PREFERRED_WORK_GROUP_SIZE_MULTIPLE:
        return answer(size_t(device->attribute(attribute_warp_size)));
      case UR_KERNEL_GROUP_INFO_PRIVATE_MEM_SIZE:
        return answer(size_t(kernel->attribute(function_private_bytes)));
      default:
        fail(UR_RESULT_ERROR_INVALID_ENUMERATION);
    }
  });
}

ur_result_t kernel_sub_group_info(ur_kernel_handle_t kernel, ur_device_handle_t device,
                                  ur_kernel_sub_group_info_t what, size_t size, void* value,
                                  size_t* needed) {
  return guarded([&] {
    const Answer answer(size, value, needed);
    const auto warp = uint32_t(device->attribute(attribute_warp_size));
    const Current current(kernel->program->device);
    switch (what) {
      case UR_KERNEL_SUB_GROUP_INFO_MAX_SUB_GROUP_SIZE:
        return answer(warp);
      case UR_KERNEL_SUB_GROUP_INFO_MAX_NUM_SUB_GROUPS:
        return answer((uint32_t(kernel->attribute(function_max_threads)) + warp - 1) / warp);
      case UR_KERNEL_SUB_GROUP_INFO_COMPILE_NUM_SUB_GROUPS:
      case UR_KERNEL_SUB_GROUP_INFO_SUB_GROUP_SIZE_INTEL:
        return answer(uint32_t(0));  // not fixed by the kernel
      default:
        fail(UR_RESULT_ERROR_INVALID_ENUMERATION);
    }
  });
}

ur_result_t kernel_native(ur_kernel_handle_t kernel, ur_native_handle_t* native) {
  return guarded([&] { *native = reinterpret_cast<ur_native_handle_t>(kernel->function); });
}

// All memory of CUDA is reachable by every kernel.
ur_result_t kernel_set_exec_info(ur_kernel_handle_t, ur_kernel_exec_info_t what, size_t,
                                 const ur_kernel_exec_info_properties_t*, const void*) {
  return guarded([&] {
    require(what == UR_KERNEL_EXEC_INFO_USM_INDIRECT_ACCESS ||
                what == UR_KERNEL_EXEC_INFO_USM_PTRS || what == UR_KERNEL_EXEC_INFO_CACHE_CONFIG,
            UR_RESULT_ERROR_INVALID_ENUMERATION);
  });
}

ur_result_t kernel_suggest_groups(ur_kernel_handle_t kernel, ur_device_handle_t device,
                                  uint32_t dimensions, const size_t* local, size_t dynamic_bytes,
                                  uint32_t* groups) {
  return guarded([&] {
    require(groups != nullptr, UR_RESULT_ERROR_INVALID_NULL_POINTER);
    size_t work_items = 1;
    for (uint32_t i = 0; i < dimensions; ++i) work_items *= local[i];
    const Current current(device);
    int resident = 0;
    check(driver().occupancy(&resident, kernel->function, int(work_items), dynamic_bytes),
          "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    *groups = uint32_t(resident) * uint32_t(device->attribute(attribute_multiprocessors));
  });
}

}  // namespace

void fill(ur_program_dditable_t& table) {
  table.pfnCreateWithBinary = program_create;
  table.pfnBuild = program_build;
  table.pfnCompile = program_compile;
  table.pfnRetain = retain;
  table.pfnRelease = release;
  table.pfnGetGlobalVariablePointer = program_global;
  table.pfnGetInfo = program_info;
  table.pfnGetBuildInfo = program_build_info;
  table.pfnGetNativeHandle = program_native;
}
void fill(ur_program_exp_dditable_t& table) {
  table.pfnBuildExp = program_build_for;
  table.pfnCompileExp = program_compile_for;
}
void fill(ur_kernel_dditable_t& table) {
  table.pfnCreate = kernel_create;
  table.pfnGetInfo = kernel_info;
  table.pfnGetGroupInfo = kernel_group_info;
  table.pfnGetSubGroupInfo = kernel_sub_group_info;
  table.pfnRetain = retain;
  table.pfnRelease = release;
  table.pfnGetNativeHandle = kernel_native;
  table.pfnSetExecInfo = kernel_set_exec_info;
  table.pfnSuggestMaxCooperativeGroupCount = kernel_suggest_groups;
}

}  // namespace cuda_adapter
