// NVML, which knows a device's memory before there is a context. Opened at run time. Any thread.
#ifndef COMMPOOL_SRC_ADAPTERS_AUDIT_MANAGEMENT_LIBRARY_H_
#define COMMPOOL_SRC_ADAPTERS_AUDIT_MANAGEMENT_LIBRARY_H_

#include <cstdint>
#include <optional>
#include <string>

namespace commpool::audit {

// Free memory of the device at an address of the bus, "0000:3b:00.0"; nothing where NVML is missing or does not tell.
std::optional<int64_t> FreeBytesByBus(const std::string& address);

}  // namespace commpool::audit

#endif  // COMMPOOL_SRC_ADAPTERS_AUDIT_MANAGEMENT_LIBRARY_H_
