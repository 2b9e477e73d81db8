#include "src/library/base/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/log.h"

namespace commpool::internal {

constexpr std::chrono::seconds kPatience(1);
constexpr std::chrono::milliseconds kBetweenLines(200);

Progress::Surroundings Progress::OfTheProcess() {
  return {.now = [] { return std::chrono::steady_clock::now(); },
          .terminal = isatty(STDERR_FILENO) != 0 && LogEnabled(LogLevel::kWarning),
          .show = [](const std::string& text) { std::fputs(text.c_str(), stderr); },
          .log = [](const std::string& line) { Log(LogLevel::kInfo, line); }};
}

Progress::Progress(std::string what, uint64_t bytes, const Surroundings& around)
    : what_(std::move(what)), bytes_(bytes), around_(around), begin_(around.now()), shown_(begin_) {}

std::string Progress::Line(Time now) const {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now - begin_).count();
  return what_ + " " + FormatBytes(done_) + " of " + FormatBytes(bytes_) + " in " +
         std::to_string(milliseconds / 1000) + "." + std::to_string(milliseconds / 100 % 10) + " s";
}

void Progress::Advance(uint64_t bytes) {
  done_ += bytes;
  if (!around_.terminal) return;
  const Time now = around_.now();
  if (now - begin_ < kPatience || now - shown_ < kBetweenLines) return;
  shown_ = now;
  around_.show("\r" + Line(now));
}

Progress::~Progress() {
  const Time now = around_.now();
  if (shown_ != begin_) {
    around_.show("\r" + Line(now) + "\n");
  } else if (!around_.terminal && now - begin_ >= kPatience) {
    around_.log(Line(now));
  }
}

}  // namespace commpool::internal
