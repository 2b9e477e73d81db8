// The C ABI: recordings.
#include "commpool/record.h"
#include "src/library/base/native_stack.h"
#include "src/library/base/try.h"
#include "src/library/c_api/boundary.h"
#include "src/library/c_api/structs.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

constexpr uint64_t kLeastLimit = uint64_t{1} << 20;

enum class Stacks { kNone = COMMPOOL_STACKS_NONE, kPython = COMMPOOL_STACKS_PYTHON, kNative = COMMPOOL_STACKS_NATIVE };

std::string (*StackOf(Stacks stacks))() {
  switch (stacks) {
    case Stacks::kNone:
      return nullptr;
    case Stacks::kPython:
      return &StackInPython;
    case Stacks::kNative:
      return &NativeStack;
  }
  return nullptr;
}

Result<recording::RecorderOptions> Parse(const commpool_record_options* given) {
  if (given == nullptr) return Invalid("record_options is null");
  COMMPOOL_TRY(CheckStructBytes("record_options", given->struct_bytes, sizeof(*given)));
  if (given->directory == nullptr || *given->directory == '\0') return Invalid("a recording needs a directory");
  if (given->limit_bytes < kLeastLimit) {
    return Invalid("a recording of at most " + std::to_string(given->limit_bytes) + " bytes: 1 MiB is the least");
  }
  Stacks stacks = Stacks::kNone;
  COMMPOOL_TRY(ReadWord("stacks", NumberOf(given->stacks), {"NONE", "PYTHON", "NATIVE"}, &stacks));
  return recording::RecorderOptions{
      .directory = given->directory, .limit_bytes = given->limit_bytes, .stack = StackOf(stacks)};
}

}  // namespace

commpool_status commpool_record_begin(const commpool_record_options* options) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    const recording::RecorderOptions parsed = COMMPOOL_TRY(Parse(options));
    COMMPOOL_TRY(runtime.Record(parsed, options->pool));
    FlushRecordingAtExit();
    return Status();
  });
}

commpool_status commpool_record_end() {
  return WithRuntime([](Runtime& runtime) { return runtime.EndRecording(); });
}
