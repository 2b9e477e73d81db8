// How programs find functions: cuGetProcAddress, and dlsym.
#ifndef COMMPOOL_SRC_ADAPTERS_AUDIT_ENTRY_POINTS_H_
#define COMMPOOL_SRC_ADAPTERS_AUDIT_ENTRY_POINTS_H_

namespace commpool::audit {

// The variant of cuGetProcAddress before CUDA 12, which cuda.h does not declare any more.
void* EarlierGetProcAddress();

}  // namespace commpool::audit

#endif  // COMMPOOL_SRC_ADAPTERS_AUDIT_ENTRY_POINTS_H_
