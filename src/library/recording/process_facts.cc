#include "src/library/recording/process_facts.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <string>

#include "src/library/base/environment.h"
#include "src/library/recording/clock.h"

namespace commpool::internal::recording {

namespace {

// -1 where the text is no number.
int64_t NumberOf(const std::string& text) {
  int64_t number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string HostName() {
  std::array<char, 256> name = {};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "host";
  return name.data();
}

// Empty where the system does not tell.
std::string Boot() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return boot;
}

std::string ProgramName() {
  std::array<char, 4096> path;
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  const std::string file(path.data(), length > 0 ? static_cast<size_t>(length) : 0);
  return file.substr(file.rfind('/') + 1);
}

}  // namespace

ProcessFacts FactsOfThisProcess() {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  ProcessFacts facts;
  facts.rank = NumberOf(Environment::Get().rank);
  facts.ranks = NumberOf(Environment::Get().ranks);
  facts.process = static_cast<uint64_t>(getpid());
  facts.steady_clock = Now();
  facts.wall_clock = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count());
  facts.host = HostName();
  facts.program = ProgramName();
  facts.boot = Boot();
  return facts;
}

}  // namespace commpool::internal::recording
