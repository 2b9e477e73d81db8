// The log of the emulated NCCL. It has the variables, prefixes and lines of the real one (reference.md lists them), so
// one parser reads both. Any thread; the first line reads the environment.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace commpool::internal::emulated_nccl {

enum class NcclLogLevel { kNone, kVersion, kWarn, kInfo, kTrace };

// The subject of a line, as NCCL_DEBUG_SUBSYS names it.
enum class Subject : uint32_t {
  kInit = 1u << 0,
  kCollective = 1u << 1,
  kTuning = 1u << 2,
  kEnvironment = 1u << 3,
  kAllocation = 1u << 4,
  kBootstrap = 1u << 5,
  kRegistration = 1u << 6,
  kAll = ~0u,
};

// Reads NCCL_DEBUG; kNone for an unknown value.
NcclLogLevel ParseLogLevel(std::string_view text);

// Reads NCCL_DEBUG_SUBSYS: a list of names with commas. After "^" it means all other names. An empty value means INIT,
// BOOTSTRAP and ENV.
uint32_t ParseSubjects(std::string_view text);

// Reads NCCL_DEBUG_FILE: replaces %h, %p and %%.
std::string ExpandFileName(std::string_view pattern, const std::string& host, int process);

[[gnu::format(printf, 2, 3)]] void LogInfo(Subject subject, const char* format, ...);
// Also stores the text as the last error, for every value of NCCL_DEBUG.
[[gnu::format(printf, 3, 4)]] void LogWarning(const char* file, int line, const char* format, ...);
void LogVersion(const std::string& line);

// Returns the last warning of the process; empty before the first.
const char* LastWarning();

std::string HostName();

}  // namespace commpool::internal::emulated_nccl

#define COMMPOOL_NCCL_WARN(...) ::commpool::internal::emulated_nccl::LogWarning(__FILE__, __LINE__, __VA_ARGS__)
