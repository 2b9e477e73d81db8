#include "tools/stress/emulated_run.h"

#include <cstdio>
#include <iostream>
#include <sstream>

#include "src/library/base/try.h"
#include "tools/common/command_line.h"

namespace commpool::cli {

Status CheckEmulated(const std::string& why) {
  const internal::LoaderOptions options =
      COMMPOOL_TRY(internal::LoaderOptionsFromEnvironment(internal::DriverChoice::kEmulated));
  if (options.choice != internal::DriverChoice::kCuda) return Status();
  return Status(StatusCode::kNotSupported, why + "; leave COMMPOOL_DRIVER=cuda out");
}

Result<std::shared_ptr<const internal::Driver>> LoadEmulatedDriver(const std::string& why) {
  COMMPOOL_TRY(CheckEmulated(why));
  internal::LoaderOptions options =
      COMMPOOL_TRY(internal::LoaderOptionsFromEnvironment(internal::DriverChoice::kEmulated));
  options.choice = internal::DriverChoice::kEmulated;
  return internal::LoadDriver(options);
}

std::vector<std::string> EmulatorLines(const internal::Driver& driver, const char* function) {
  constexpr size_t kMost = size_t{1} << 20;
  const auto write = reinterpret_cast<size_t (*)(char*, size_t)>(driver.extension(function));
  std::vector<std::string> lines;
  char none = 0;
  if (write == nullptr || write(&none, sizeof(none)) == 0) return lines;
  std::vector<char> text(kMost);
  write(text.data(), text.size());
  std::istringstream stream(text.data());
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Result<RankCounts> ParseRanks(const std::string& text) {
  RankCounts counts;
  char rest = 0;
  const int read = std::sscanf(text.c_str(), "%d:%d%c", &counts.least, &counts.most, &rest);
  if (read == 1 && text.find(':') == std::string::npos) counts.most = counts.least;
  if (read < 1 || read > 2 || counts.least < 2 || counts.most > 8 || counts.least > counts.most) {
    return Status(StatusCode::kInvalidArgument, "--ranks " + text + ": a number from 2 to 8, or LEAST:MOST");
  }
  return counts;
}

int Verdict(bool sound, bool planted) {
  if (!sound) return kWrongResult;
  if (!planted) return kSuccess;
  std::cout << "the planted fault was not found\n";
  return kNotAsAsked;
}

}  // namespace commpool::cli
