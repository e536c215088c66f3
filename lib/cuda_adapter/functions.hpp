// Each source fills its part of the tables; what it leaves is answered with "unsupported feature".
#pragma once

#include <unified-runtime/ur_ddi.h>

namespace cuda_adapter {

// Groups of which nothing is supported.
template <typename Table>
void fill(Table&) {}

void fill(ur_adapter_dditable_t& table);
void fill(ur_platform_dditable_t& table);
void fill(ur_device_dditable_t& table);
void fill(ur_device_exp_dditable_t& table);
void fill(ur_usm_p2p_exp_dditable_t& table);
void fill(ur_context_dditable_t& table);
void fill(ur_usm_dditable_t& table);
void fill(ur_usm_exp_dditable_t& table);
void fill(ur_queue_dditable_t& table);
void fill(ur_event_dditable_t& table);
void fill(ur_program_dditable_t& table);
void fill(ur_program_exp_dditable_t& table);
void fill(ur_kernel_dditable_t& table);
void fill(ur_enqueue_dditable_t& table);
void fill(ur_enqueue_exp_dditable_t& table);

}  // namespace cuda_adapter
