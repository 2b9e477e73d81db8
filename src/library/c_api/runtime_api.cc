// The C ABI: errors, the runtime, the configuration in force, recordings, the cost of driver calls, what lies where,
// and memory beyond one pool: that of devices, and NCCL's own of a communicator.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/communicator.h"
#include "commpool/record.h"
#include "src/library/base/native_stack.h"
#include "src/library/base/of_this_thread.h"
#include "src/library/base/printable.h"
#include "src/library/base/try.h"
#include "src/library/c_api/boundary.h"
#include "src/library/c_api/structs.h"
#include "src/library/driver/metering.h"
#include "src/library/pool/blocks/block_store.h"
#include "src/library/pool/nvls_eligibility.h"
#include "src/library/pool/options.h"
#include "src/library/registration/communicator.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

struct LastLines {};  // tags the thread's last answer, which owns the texts

Status Write(std::vector<SettingLine> lines, const EntryArray<commpool_setting>& output) {
  COMMPOOL_TRY(output.Check("setting"));
  auto* const last = OfThisThread<std::vector<SettingLine>, LastLines>();
  if (last == nullptr) return FailedPrecondition("the thread is ending, and keeps no text any more");
  *last = std::move(lines);
  output.Write(*last, [](const SettingLine& line) {
    return commpool_setting{line.pool.c_str(), line.key.c_str(), line.value.c_str(), line.source.c_str()};
  });
  return Status();
}

// As entries of COMMPOOL_CONF, without what other lines of a pool tell.
std::string TextOf(const commpool_segment_traits& traits) {
  std::string text = traits.location == COMMPOOL_LOCATION_DEVICE ? "location:device" : "location:host_numa";
  const auto add = [&](const char* key, auto value) { text += std::string(",") + key + ":" + std::to_string(value); };
  add("numa_node", traits.numa_node);
  add("granularity", traits.granularity_bytes);
  add("one_handle", traits.one_handle);
  add("descriptor", traits.descriptor);
  add("fabric", traits.fabric);
  add("rdma", traits.rdma);
  return text;
}

constexpr uint64_t kDefaultDeadlineMs = 60000;

template <typename Value, typename Output>
void WriteWhereAsked(Value value, Output* output) {
  if (output != nullptr) *output = static_cast<Output>(value);
}

struct LastReason {};  // tags why NVLink multicast does not serve

constexpr uint64_t kLeastLimit = uint64_t{1} << 20;

Result<recording::RecorderOptions> ParseRecordOptions(const commpool_record_options& given) {
  COMMPOOL_TRY(CheckStructBytes("record_options", given.struct_bytes, sizeof(given)));
  if (given.directory == nullptr || *given.directory == '\0') return InvalidArgument("a recording needs a directory");
  if (given.limit_bytes < kLeastLimit) {
    return InvalidArgument("a recording of at most ", given.limit_bytes, " bytes: 1 MiB is the least");
  }
  constexpr std::array<std::string (*)(), 3> kStacks = {nullptr, &StackInPython, &NativeStack};
  const auto stacks = COMMPOOL_TRY(WordOf<size_t>("stacks", given.stacks, {"NONE", "PYTHON", "NATIVE"}));
  return recording::RecorderOptions{
      .directory = given.directory, .limit_bytes = given.limit_bytes, .stack = kStacks[stacks]};
}

}  // namespace

const char* commpool_last_error(void) { return LastErrorMessage(); }

int commpool_version(void) { return COMMPOOL_VERSION; }

commpool_status commpool_initialize(commpool_driver driver, commpool_measure measure) {
  return Guarded([&]() -> Status {
    COMMPOOL_TRY(RefuseUserFunction());
    const auto choice = COMMPOOL_TRY(WordOf<DriverChoice>("driver", driver, {"CUDA", "EMULATED", "AUTO"}));
    const auto wanted = COMMPOOL_TRY(WordOf<Measure>("measure", measure, {"NOTHING", "CALLS"}));
    return OpenProcessRuntime(choice, wanted);
  });
}

commpool_status commpool_driver_calls(commpool_driver_call* calls, size_t entry_bytes, size_t capacity, size_t* count) {
  const EntryArray<commpool_driver_call> output = {calls, entry_bytes, capacity, count};
  return Guarded([&]() -> Status {
    COMMPOOL_TRY(output.Check("driver_call"));
    if (!DriverIsMeasured()) {
      return FailedPrecondition("no driver call is measured: initialize() that measures comes first");
    }
    output.Write(MeteredFunctions(), [](const MeteredFunction& function) {
      return commpool_driver_call{function.name, function.calls, function.microseconds};
    });
    return Status();
  });
}

commpool_status commpool_configuration(commpool_pool pool, commpool_setting* settings, size_t entry_bytes,
                                       size_t capacity, size_t* count) {
  const EntryArray<commpool_setting> output = {settings, entry_bytes, capacity, count};
  if (pool != 0) {
    return WithPool(pool, [&](Pool& found) {
      std::vector<SettingLine> lines = DescribePool(found.basis().configuration);
      lines.push_back({found.name(), "state",
                       found.basis().life.open()     ? "open"
                       : found.basis().life.asleep() ? "asleep"
                                                     : "closed",
                       "now"});
      MemoryFacts memory = found.segments().backing->Facts();
      lines.push_back({found.name(), "memory", std::move(memory.what),
                       memory.why.empty() ? std::string("driver") : std::move(memory.why)});
      lines.push_back({found.name(), "segments", TextOf(found.segments().Traits()), "driver"});
      MemoryFacts access = found.segments().peers.Access();
      lines.push_back({found.name(), "access", std::move(access.what), std::move(access.why)});
      return Write(std::move(lines), output);
    });
  }
  return Guarded([&]() -> Status {
    const Settings said = COMMPOOL_TRY(SettingsFromEnvironment());
    std::vector<SettingLine> lines = said.Describe();
    const Runtime* const open = OpenedProcessRuntime();
    lines.insert(lines.begin(), {"", "driver", open == nullptr ? "" : open->driver().description, "now"});
    return Write(std::move(lines), output);
  });
}

commpool_status commpool_set_device_bound(int device, commpool_device_bound bound, uint64_t bytes) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    const auto asked = COMMPOOL_TRY(WordOf<commpool_device_bound>("bound", bound, {"LIMIT", "HEADROOM"}));
    std::shared_ptr<DeviceState> state = COMMPOOL_TRY(runtime.devices().Get(device));
    asked == COMMPOOL_DEVICE_LIMIT ? state->account().SetLimit(bytes) : state->account().SetHeadroom(bytes);
    return Status();
  });
}

commpool_status commpool_set_budget(const char* name, uint64_t bytes) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (name == nullptr || *name == '\0') return InvalidArgument("a budget needs a name");
    runtime.devices().SetBudget(Printable(name), bytes);
    return Status();
  });
}

commpool_status commpool_budget_use(int device, const char* budget, uint64_t* reserved_bytes, uint64_t* peak_bytes,
                                    uint64_t* limit_bytes) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (budget != nullptr && *budget == '\0') return InvalidArgument("a budget needs a name");
    const std::string name = budget == nullptr ? "" : Printable(budget);
    const Placement placement = {.device = device};
    const std::shared_ptr<MemoryAccount> account = COMMPOOL_TRY(runtime.devices().AccountOf(placement, name));
    WriteWhereAsked(account->taken(), reserved_bytes);
    WriteWhereAsked(account->peak(), peak_bytes);
    WriteWhereAsked(account->limit(), limit_bytes);
    return Status();
  });
}

commpool_status commpool_release_idle(int device, commpool_device_work work, uint64_t* bytes) {
  // Opening the runtime would call the driver, from within a call of it that failed. There is no pool then.
  if (OpenedProcessRuntime() == nullptr) return WriteWhereAsked(uint64_t{0}, bytes), COMMPOOL_OK;
  return WithRuntime([&](Runtime& runtime) -> Status {
    const auto known = COMMPOOL_TRY(WordOf<DeviceWork>("work", work, {"MAY_WORK", "IDLE"}));
    WriteWhereAsked(runtime.search().ReleaseIdle(device, known), bytes);
    return Status();
  });
}

commpool_status commpool_add_holder(const commpool_holder_options* options, commpool_holder* holder) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (options == nullptr || holder == nullptr) return NullOptions();
    COMMPOOL_TRY(CheckStructBytes("holder_options", options->struct_bytes, sizeof(*options)));
    *holder = runtime.holders().Add(*options);
    return Status();
  });
}

commpool_status commpool_remove_holder(commpool_holder holder) {
  return WithRuntime([&](Runtime& runtime) { return runtime.holders().Remove(holder); });
}

commpool_status commpool_communicator_sleep(ncclComm* communicator, uint64_t deadline_ms) {
  return WithRuntime([&](Runtime& runtime) {
    const uint64_t deadline = deadline_ms == 0 ? kDefaultDeadlineMs : std::min(deadline_ms, kLongestDeadlineMs);
    return runtime.sleeping_communicators().Sleep(communicator, deadline);
  });
}

commpool_status commpool_communicator_wake(ncclComm* communicator) {
  return WithRuntime([&](Runtime& runtime) { return runtime.sleeping_communicators().Wake(communicator); });
}

commpool_status commpool_communicator_memory(ncclComm* communicator, uint64_t* bytes, uint64_t* sleeping_bytes,
                                             int* asleep) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (communicator == nullptr) return InvalidArgument("the communicator is null");
    const CommunicatorMemory memory = COMMPOOL_TRY(MemoryOf(runtime.driver(), communicator));
    WriteWhereAsked(memory.bytes, bytes);
    WriteWhereAsked(memory.sleeping_bytes, sleeping_bytes);
    WriteWhereAsked(memory.asleep, asleep);
    return Status();
  });
}

commpool_status commpool_block_of(const void* pointer, commpool_block* block, size_t entry_bytes) {
  bool found = true;
  const commpool_status status = WithRuntime([&](Runtime& runtime) -> Status {
    if (block == nullptr) return NullOutput();
    COMMPOOL_TRY(CheckEntryBytes("block", entry_bytes, sizeof(*block)));
    const Result<commpool_block> holder = BlockAt(runtime, pointer);
    found = holder.ok();
    if (found) *block = runtime.Shown(*holder);
    return Status();
  });
  return found ? status : COMMPOOL_NOT_FOUND;
}

commpool_status commpool_pool_blocks(commpool_pool pool, commpool_block* blocks, size_t entry_bytes, size_t capacity,
                                     size_t* count) {
  const EntryArray<commpool_block> output = {blocks, entry_bytes, capacity, count};
  return WithRuntime([&](Runtime& runtime) -> Status {
    std::shared_ptr<Pool> found = COMMPOOL_TRY(runtime.pools().Find(pool));
    COMMPOOL_TRY(output.Check("block"));
    output.Write(internal::ListBlocks(found->basis(), found->blocks()),
                 [&](const commpool_block& block) { return runtime.Shown(block); });
    return Status();
  });
}

commpool_status commpool_nvls_eligible(const void* pointer, uint64_t bytes, ncclComm* communicator, int* eligible,
                                       const char** reason) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (eligible == nullptr) return NullOutput();
    std::string why =
        COMMPOOL_TRY(WhyNoNvls(runtime.driver(), runtime.addresses(), runtime.windows(),
                               {.address = AddressOf(pointer), .bytes = bytes, .communicator = communicator}));
    *eligible = why.empty() ? 1 : 0;
    std::string* const last = OfThisThread<std::string, LastReason>();
    if (last != nullptr) *last = std::move(why);
    if (reason != nullptr) *reason = last == nullptr ? "" : last->c_str();  // the thread is ending: its string is gone
    return Status();
  });
}

commpool_status commpool_record(const commpool_record_options* options) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (options == nullptr) return runtime.EndRecording();
    const recording::RecorderOptions parsed = COMMPOOL_TRY(ParseRecordOptions(*options));
    COMMPOOL_TRY(runtime.Record(parsed, options->pool));
    FlushRecordingAtExit();
    return Status();
  });
}
