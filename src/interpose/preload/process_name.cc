#include "src/interpose/preload/process_name.h"

#include <errno.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "src/library/base/write_signals.h"

namespace commpool::preload {

namespace {

int NumberIn(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    const char* const text = std::getenv(variable);
    if (text != nullptr && *text != '\0') return std::atoi(text);
  }
  return -1;
}

// Whose books these are: of the process that the library was loaded into, until one uses CUDA.
std::atomic<pid_t> owner = getpid();

}  // namespace

Place PlaceOfProcess() {
  return {NumberIn({"OMPI_COMM_WORLD_RANK", "RANK", "PMI_RANK", "SLURM_PROCID"}),
          NumberIn({"OMPI_COMM_WORLD_SIZE", "WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"})};
}

std::string NameOfProgram() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  const std::string file(path, length > 0 ? static_cast<size_t>(length) : 0);
  return file.substr(file.rfind('/') + 1);
}

std::string NameOfProcess() {
  const Place place = PlaceOfProcess();
  std::string name;
  if (place.rank >= 0) name = "rank " + std::to_string(place.rank);
  if (place.rank >= 0 && place.ranks > 0) name += " of " + std::to_string(place.ranks);
  if (!name.empty()) name += ", ";
  return name + "process " + std::to_string(getpid()) + " (" + NameOfProgram() + ")";
}

void TakeBooks() { owner = getpid(); }

bool IsForked() { return getpid() != owner; }

int WriteTo(int file, std::string_view text) {
  const internal::WriteSignalsBlocked no_signals;
  // Where a disk becomes full, the first write takes a part, and only the next one says why.
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

void Write(const std::string& text) { static_cast<void>(WriteTo(STDERR_FILENO, text)); }  // perhaps nobody listens

void Say(const std::string& command, const std::string& text) {
  Write("commpool " + command + ": " + NameOfProcess() + ": " + text + "\n");
}

}  // namespace commpool::preload
