#include "tools/common/progress.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace commpool::cli {

namespace {

// mpirun gives its ranks pipes, so open the terminal that it was started on by name.
std::FILE* OpenTerminal() {
  if (isatty(STDERR_FILENO) != 0) return std::fopen("/dev/stderr", "w");
  return std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr ? nullptr : std::fopen("/dev/tty", "w");
}

}  // namespace

Progress::Progress(std::string work, uint64_t total, Shown shown) : work_(std::move(work)), total_(total) {
  if (shown == Shown::kYes) terminal_ = OpenTerminal();
}

Progress::~Progress() {
  if (terminal_ == nullptr) return;
  std::fputs("\r\033[K", terminal_);
  std::fclose(terminal_);
}

void Progress::Show(uint64_t done, const std::string& next) {
  if (terminal_ == nullptr) return;
  const uint64_t percent = total_ == 0 ? 100 : done * 100 / total_;
  if (percent == shown_percent_ && next.empty()) return;
  shown_percent_ = percent;
  std::fprintf(terminal_, "\r\033[K%s %llu of %llu%s%s", work_.c_str(), static_cast<unsigned long long>(done),
               static_cast<unsigned long long>(total_), next.empty() ? "" : ": ", next.c_str());
  std::fflush(terminal_);
}

}  // namespace commpool::cli
