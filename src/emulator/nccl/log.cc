#include "src/emulator/nccl/log.h"

#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>

#include "src/emulator/nccl/driver.h"

namespace commpool::internal::emulated_nccl {

namespace {

constexpr std::array<std::pair<std::string_view, Subject>, 8> kSubjectNames = {{
    {"INIT", Subject::kInit},
    {"COLL", Subject::kCollective},
    {"TUNING", Subject::kTuning},
    {"ENV", Subject::kEnvironment},
    {"ALLOC", Subject::kAllocation},
    {"BOOTSTRAP", Subject::kBootstrap},
    {"REG", Subject::kRegistration},
    {"ALL", Subject::kAll},
}};

// Reads a variable that may hold a file name.
const char* Variable(const char* name) {
  const char* value = secure_getenv(name);
  return value != nullptr ? value : "";
}

std::string FormatList(const char* format, va_list arguments) {
  std::array<char, 1024> text;
  std::vsnprintf(text.data(), text.size(), format, arguments);
  return text.data();
}

std::string Prefix() {
  CUdevice device = 0;
  if (GetDriver().cuCtxGetDevice(&device) != CUDA_SUCCESS) device = 0;
  static const auto* const host = new std::string(HostName());  // never destroyed: programs call NCCL at exit
  return *host + ":" + std::to_string(getpid()) + ":" + std::to_string(gettid()) + " [" + std::to_string(device) + "] ";
}

std::string TimeStamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  localtime_r(&now, &parts);
  std::array<char, 32> text;
  std::strftime(text.data(), text.size(), "[%F %T] ", &parts);
  return text.data();
}

// Owns the log file and the chosen levels and subjects. One for each process; every log line asks it.
class Output {
 public:
  static Output& Get() {
    static auto* const output = new Output();  // never destroyed: programs call NCCL at exit
    return *output;
  }

  bool Prints(NcclLogLevel level, Subject subject) const {
    return level <= level_ && (subjects_ & static_cast<uint32_t>(subject)) != 0;
  }

  void Write(const std::string& line) {
    const std::lock_guard lock(mutex_);
    std::fwrite(line.data(), 1, line.size(), file_);
    std::fflush(file_);
  }

  void SetLastWarning(const std::string& text) {
    const std::lock_guard lock(mutex_);
    std::strncpy(last_warning_.data(), text.c_str(), last_warning_.size() - 1);
  }
  const char* last_warning() const { return last_warning_.data(); }
  NcclLogLevel level() const { return level_; }

 private:
  Output() : level_(ParseLogLevel(Variable("NCCL_DEBUG"))), subjects_(ParseSubjects(Variable("NCCL_DEBUG_SUBSYS"))) {
    const std::string name = ExpandFileName(Variable("NCCL_DEBUG_FILE"), HostName(), getpid());
    if (level_ <= NcclLogLevel::kVersion || name.empty()) return;
    if (std::FILE* file = std::fopen(name.c_str(), "we")) file_ = file;
  }

  std::mutex mutex_;
  const NcclLogLevel level_;
  const uint32_t subjects_;
  std::FILE* file_ = stdout;
  std::array<char, 1024> last_warning_ = {};
};

}  // namespace

NcclLogLevel ParseLogLevel(std::string_view text) {
  if (text == "VERSION") return NcclLogLevel::kVersion;
  if (text == "WARN") return NcclLogLevel::kWarn;
  if (text == "INFO") return NcclLogLevel::kInfo;
  if (text == "TRACE") return NcclLogLevel::kTrace;
  return NcclLogLevel::kNone;
}

uint32_t ParseSubjects(std::string_view text) {
  if (text.empty()) {
    return static_cast<uint32_t>(Subject::kInit) | static_cast<uint32_t>(Subject::kBootstrap) |
           static_cast<uint32_t>(Subject::kEnvironment);
  }
  const bool excludes = text.front() == '^';
  if (excludes) text.remove_prefix(1);
  uint32_t named = 0;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(entry.size() < text.size() ? entry.size() + 1 : entry.size());
    for (const auto& [name, subject] : kSubjectNames) {
      if (entry == name) named |= static_cast<uint32_t>(subject);
    }
  }
  return excludes ? ~named : named;
}

std::string ExpandFileName(std::string_view pattern, const std::string& host, int process) {
  std::string name;
  for (size_t index = 0; index < pattern.size(); ++index) {
    if (pattern[index] != '%' || index + 1 == pattern.size()) {
      name += pattern[index];
      continue;
    }
    const char code = pattern[++index];
    if (code == 'h') {
      name += host;
    } else if (code == 'p') {
      name += std::to_string(process);
    } else if (code == '%') {
      name += '%';
    } else {
      name += '%';
      name += code;
    }
  }
  return name;
}

void LogInfo(Subject subject, const char* format, ...) {
  Output& output = Output::Get();
  if (!output.Prints(NcclLogLevel::kInfo, subject)) return;
  va_list arguments;
  va_start(arguments, format);
  const std::string text = FormatList(format, arguments);
  va_end(arguments);
  output.Write(Prefix() + "NCCL INFO " + text + "\n");
}

void LogWarning(const char* file, int line, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const std::string text = FormatList(format, arguments);
  va_end(arguments);
  Output& output = Output::Get();
  output.SetLastWarning(text);
  if (!output.Prints(NcclLogLevel::kWarn, Subject::kAll)) return;
  output.Write("\n" + TimeStamp() + Prefix() + file + ":" + std::to_string(line) + " NCCL WARN " + text + "\n");
}

void LogVersion(const std::string& line) {
  Output& output = Output::Get();
  if (output.level() == NcclLogLevel::kVersion || output.level() == NcclLogLevel::kWarn) {
    output.Write(line + "\n");
  } else {
    LogInfo(Subject::kAll, "%s", line.c_str());
  }
}

const char* LastWarning() { return Output::Get().last_warning(); }

std::string HostName() {
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  std::string host = name.data();
  for (char& letter : host) {
    if (letter == '/' || letter == '%') letter = '-';
  }
  return host.substr(0, host.find('.'));
}

}  // namespace commpool::internal::emulated_nccl
