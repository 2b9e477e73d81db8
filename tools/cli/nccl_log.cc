#include "tools/cli/nccl_log.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

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

NcclLog::NcclLog() {
  std::error_code ignored;
  const std::string stem =
      (std::filesystem::temp_directory_path(ignored) / ("commpool-nccl-log-" + std::to_string(getpid()))).string();
  file_ = stem;
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "TUNING,REG", 1);
  setenv("NCCL_DEBUG_FILE", file_.c_str(), 1);
}

NcclLog::~NcclLog() { std::remove(file_.c_str()); }

LogFindings NcclLog::Next() {
  std::ifstream file(file_);
  file.seekg(position_);
  const std::string lines((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  position_ += static_cast<long>(lines.size());
  return ReadLines(lines);
}

}  // namespace commpool::cli
