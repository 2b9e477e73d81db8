// The C ABI: what is in force and where it came from.
#include <string>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "src/base/of_this_thread.h"
#include "src/base/try.h"
#include "src/c_api/boundary.h"
#include "src/c_api/process_runtime.h"
#include "src/c_api/structs.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

struct LastLines {};  // the thread's last answer, which its texts are of

Status Write(std::vector<SettingLine> lines, const EntryArray<commpool_setting>& output) {
  COMMPOOL_TRY(output.Check("setting"));
  auto* const last = OfThisThread<std::vector<SettingLine>, LastLines>();
  if (last == nullptr) {
    return Status(StatusCode::kFailedPrecondition, "the thread is ending, and keeps no text any more");
  }
  *last = std::move(lines);
  output.Write(*last, [](const SettingLine& line) {
    return commpool_setting{line.pool.c_str(), line.key.c_str(), line.value.c_str(), line.source.c_str()};
  });
  return Status();
}

}  // namespace

commpool_status commpool_configuration(commpool_pool pool, commpool_setting* settings, size_t entry_bytes,
                                       size_t capacity, size_t* count) {
  const EntryArray<commpool_setting> output = {settings, entry_bytes, capacity, count};
  if (pool != 0) {
    return WithPool(pool, [&](Pool& found) { return Write(DescribePool(found.configuration()), output); });
  }
  return Guarded([&]() -> Status {
    const Settings said = COMMPOOL_TRY(SettingsFromEnvironment());
    return Write(said.Describe(), output);
  });
}
