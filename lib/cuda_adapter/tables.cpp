// What the loader asks for: tables of functions, one a group.
#include "functions.hpp"
#include "objects.hpp"

namespace cuda_adapter {
namespace {

ur_result_t unsupported() { return UR_RESULT_ERROR_UNSUPPORTED_FEATURE; }

// A table is nothing but pointers to functions. Whatever it is called with, `unsupported` answers: the
// caller takes arguments off the stack again, and all of them return a ur_result_t.
template <typename Table>
void fill_unsupported(Table& table) {
  using Function = ur_result_t (*)();
  static_assert(sizeof(Table) % sizeof(Function) == 0);
  auto* function = reinterpret_cast<Function*>(&table);
  for (size_t i = 0; i < sizeof(Table) / sizeof(Function); ++i) function[i] = unsupported;
}

template <typename Table>
ur_result_t get_table(ur_api_version_t version, Table* table) {
  // Tables change with each minor version.
  if (version != UR_API_VERSION_CURRENT) return UR_RESULT_ERROR_UNSUPPORTED_VERSION;
  if (table == nullptr) return UR_RESULT_ERROR_INVALID_NULL_POINTER;
  fill_unsupported(*table);
  fill(*table);
  return UR_RESULT_SUCCESS;
}

}  // namespace

const ur_dditable_t* all_functions() {
  static const ur_dditable_t* const tables = [] {
    auto* made = new ur_dditable_t;
    fill_unsupported(*made);
    fill(made->Adapter);
    fill(made->Platform);
    fill(made->Device);
    fill(made->DeviceExp);
    fill(made->UsmP2PExp);
    fill(made->Context);
    fill(made->USM);
    fill(made->USMExp);
    fill(made->Queue);
    fill(made->Event);
    fill(made->Program);
    fill(made->ProgramExp);
    fill(made->Kernel);
    fill(made->Enqueue);
    fill(made->EnqueueExp);
    return made;
  }();
  return tables;
}

}  // namespace cuda_adapter

#define CUDA_ADAPTER_EXPORT(function, table)                                                       \
  extern "C" __attribute__((visibility("default"))) ur_result_t function(ur_api_version_t version, \
                                                                         table* functions) {       \
    return cuda_adapter::get_table(version, functions);                                            \
  }
CUDA_ADAPTER_EXPORT(urGetAdapterProcAddrTable, ur_adapter_dditable_t)
CUDA_ADAPTER_EXPORT(urGetPlatformProcAddrTable, ur_platform_dditable_t)
CUDA_ADAPTER_EXPORT(urGetContextProcAddrTable, ur_context_dditable_t)
CUDA_ADAPTER_EXPORT(urGetEventProcAddrTable, ur_event_dditable_t)
CUDA_ADAPTER_EXPORT(urGetEventExpProcAddrTable, ur_event_exp_dditable_t)
CUDA_ADAPTER_EXPORT(urGetProgramProcAddrTable, ur_program_dditable_t)
CUDA_ADAPTER_EXPORT(urGetProgramExpProcAddrTable, ur_program_exp_dditable_t)
CUDA_ADAPTER_EXPORT(urGetKernelProcAddrTable, ur_kernel_dditable_t)
CUDA_ADAPTER_EXPORT(urGetQueueProcAddrTable, ur_queue_dditable_t)
CUDA_ADAPTER_EXPORT(urGetQueueExpProcAddrTable, ur_queue_exp_dditable_t)
CUDA_ADAPTER_EXPORT(urGetSamplerProcAddrTable, ur_sampler_dditable_t)
CUDA_ADAPTER_EXPORT(urGetMemProcAddrTable, ur_mem_dditable_t)
CUDA_ADAPTER_EXPORT(urGetPhysicalMemProcAddrTable, ur_physical_mem_dditable_t)
CUDA_ADAPTER_EXPORT(urGetEnqueueProcAddrTable, ur_enqueue_dditable_t)
CUDA_ADAPTER_EXPORT(urGetEnqueueExpProcAddrTable, ur_enqueue_exp_dditable_t)
CUDA_ADAPTER_EXPORT(urGetUSMProcAddrTable, ur_usm_dditable_t)
CUDA_ADAPTER_EXPORT(urGetUSMExpProcAddrTable, ur_usm_exp_dditable_t)
CUDA_ADAPTER_EXPORT(urGetBindlessImagesExpProcAddrTable, ur_bindless_images_exp_dditable_t)
CUDA_ADAPTER_EXPORT(urGetCommandBufferExpProcAddrTable, ur_command_buffer_exp_dditable_t)
CUDA_ADAPTER_EXPORT(urGetGraphExpProcAddrTable, ur_graph_exp_dditable_t)
CUDA_ADAPTER_EXPORT(urGetIPCExpProcAddrTable, ur_ipc_exp_dditable_t)
CUDA_ADAPTER_EXPORT(urGetMemoryExportExpProcAddrTable, ur_memory_export_exp_dditable_t)
CUDA_ADAPTER_EXPORT(urGetUsmP2PExpProcAddrTable, ur_usm_p2p_exp_dditable_t)
CUDA_ADAPTER_EXPORT(urGetVirtualMemProcAddrTable, ur_virtual_mem_dditable_t)
CUDA_ADAPTER_EXPORT(urGetDeviceProcAddrTable, ur_device_dditable_t)
CUDA_ADAPTER_EXPORT(urGetDeviceExpProcAddrTable, ur_device_exp_dditable_t)
