#include "src/library/base/python_stack.h"

#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <sstream>

#include "src/library/base/write_signals.h"

namespace commpool::internal {

namespace {

constexpr int kMostFrames = 12;

// The walk of Python's fault handler: it takes neither the interpreter's lock nor memory, so it may run inside of any
// call, whoever has the lock. The frames are the calling thread's own, and stand still.
struct Python {
  explicit Python(void* (*find)(const char* name))
      : is_initialised(reinterpret_cast<decltype(is_initialised)>(find("Py_IsInitialized"))),
        thread_state(reinterpret_cast<decltype(thread_state)>(find("PyGILState_GetThisThreadState"))),
        dump(reinterpret_cast<decltype(dump)>(find("_Py_DumpTraceback"))) {}

  int (*is_initialised)();
  void* (*thread_state)();
  void (*dump)(int file, void* thread_state);

  bool whole() const { return is_initialised != nullptr && thread_state != nullptr && dump != nullptr; }
};

std::string ReadFile(int file) {
  std::string text(static_cast<size_t>(lseek(file, 0, SEEK_CUR)), '\0');
  const ssize_t length = pread(file, text.data(), text.size(), 0);
  text.resize(length < 0 ? 0 : static_cast<size_t>(length));
  return text;
}

}  // namespace

std::string ReadFrames(const std::string& dump) {
  std::istringstream lines(dump);
  std::string frames;
  int count = 0;
  for (std::string line; count < kMostFrames && std::getline(lines, line);) {
    // `  File "train.py", line 12 in step`
    const size_t file = line.find("File \"");
    const size_t number = line.rfind("\", line ");
    const size_t function = line.rfind(" in ");
    if (file == std::string::npos || number == std::string::npos || function == std::string::npos) continue;
    frames += (count++ == 0 ? "" : "\n") + line.substr(file + 6, number - file - 6) + ":" +
              line.substr(number + 8, function - number - 8) + " " + line.substr(function + 4);
  }
  return frames;
}

std::string PythonStack(void* (*find)(const char* name)) {
  static const Python python(find);
  if (!python.whole() || python.is_initialised() == 0) return "";
  void* const state = python.thread_state();
  if (state == nullptr) return "";
  static std::mutex mutex;  // of the file
  static const int file = memfd_create("commpool stacks", MFD_CLOEXEC);
  const std::lock_guard<std::mutex> lock(mutex);
  const WriteSignalsBlocked no_signals;
  if (file < 0 || ftruncate(file, 0) != 0 || lseek(file, 0, SEEK_SET) != 0) return "";
  python.dump(file, state);
  return ReadFrames(ReadFile(file));
}

}  // namespace commpool::internal
