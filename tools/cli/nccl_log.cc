#include "tools/cli/nccl_log.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <system_error>

namespace commpool::cli {

const char* Name(UsedRegistration used) {
  switch (used) {
    case UsedRegistration::kNone:
      return "none";
    case UsedRegistration::kLocal:
      return "local";
    case UsedRegistration::kWindow:
      return "window";
  }
  return "none";
}

LogFindings ReadLines(const std::string& lines) {
  LogFindings findings;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    const auto says = [&](const char* text) { return line.find(text) != std::string::npos; };
    if (says("[Symmetric]")) findings.used = UsedRegistration::kWindow;
    const bool registered = says("- IPC register buffer") || says("- IPC reuse buffer") ||
                            says("successfully registered NVLS") || says("successfully registered CollNet") ||
                            says("reuse registered NVLS");
    if (registered && findings.used == UsedRegistration::kNone) findings.used = UsedRegistration::kLocal;
    if (says("AllReduce:") && says("proto SIMPLE")) findings.could_use_local = true;
  }
  return findings;
}

NcclLog::NcclLog() : memory_(memfd_create("nccl log", MFD_CLOEXEC)) {
  if (!memory_.valid()) throw std::system_error(errno, std::generic_category(), "memory for NCCL's log");
  const std::string path = "/proc/self/fd/" + std::to_string(memory_.get());
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "TUNING,REG", 1);
  setenv("NCCL_DEBUG_FILE", path.c_str(), 1);
}

LogFindings NcclLog::Next() {
  std::string lines;
  std::array<char, 1 << 16> part;
  while (true) {
    const ssize_t count = pread(memory_.get(), part.data(), part.size(), position_);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    lines.append(part.data(), static_cast<size_t>(count));
    position_ += count;
  }
  return ReadLines(lines);
}

}  // namespace commpool::cli
