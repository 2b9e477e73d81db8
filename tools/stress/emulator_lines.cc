#include "tools/stress/emulator_lines.h"

#include <cstddef>
#include <sstream>

namespace commpool::cli {

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

}  // namespace commpool::cli
