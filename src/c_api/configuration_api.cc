// The C ABI: what is in force and where it came from.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "src/base/of_this_thread.h"
#include "src/c_api/boundary.h"
#include "src/c_api/process_runtime.h"
#include "src/c_api/structs.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

constexpr size_t kFirstSettingBytes = 32;  // of 0.3

struct LastLines {};  // the thread's last answer, which its texts are of

Status Write(std::vector<SettingLine> lines, commpool_setting* settings, size_t entry_bytes, size_t capacity,
             size_t* count) {
  if (settings == nullptr && count == nullptr) return NullOutput();
  if (settings != nullptr && entry_bytes < kFirstSettingBytes) {
    return Status(StatusCode::kInvalidArgument,
                  "entry_bytes is " + std::to_string(entry_bytes) + ": pass sizeof(commpool_setting)");
  }
  auto* const last = OfThisThread<std::vector<SettingLine>, LastLines>();
  if (last == nullptr) {
    return Status(StatusCode::kFailedPrecondition, "the thread is ending, and keeps no text any more");
  }
  *last = std::move(lines);
  const size_t written = settings == nullptr ? 0 : std::min(capacity, last->size());
  for (size_t place = 0; place < written; ++place) {
    const SettingLine& line = (*last)[place];
    const commpool_setting entry = {line.pool.c_str(), line.key.c_str(), line.value.c_str(), line.source.c_str()};
    WriteBytes(&entry, sizeof(entry), EntryAt(settings, entry_bytes, place), entry_bytes);
  }
  if (count != nullptr) *count = last->size();
  return Status();
}

}  // namespace

commpool_status commpool_configuration(commpool_pool pool, commpool_setting* settings, size_t entry_bytes,
                                       size_t capacity, size_t* count) {
  if (pool != 0) {
    return WithPool(pool, [&](Pool& found) {
      return Write(DescribePool(found.configuration()), settings, entry_bytes, capacity, count);
    });
  }
  return Guarded([&]() -> Status {
    const Result<Settings> said = SettingsFromEnvironment();
    if (!said.ok()) return said.status();
    return Write(said->Describe(), settings, entry_bytes, capacity, count);
  });
}
