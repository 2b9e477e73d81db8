// The C ABI: which block holds a pointer, whether NVLink multicast can serve it, and what lies where in a pool.
#include <memory>
#include <string>
#include <utility>

#include "commpool/commpool.h"
#include "src/library/base/of_this_thread.h"
#include "src/library/base/try.h"
#include "src/library/c_api/boundary.h"
#include "src/library/c_api/structs.h"
#include "src/library/pool/nvls_eligibility.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

struct LastReason {};  // tags the thread's last reason

}  // namespace

commpool_status commpool_block_of(const void* pointer, commpool_block* block, size_t entry_bytes) {
  bool found = true;
  const commpool_status status = WithRuntime([&](Runtime& runtime) -> Status {
    if (block == nullptr) return NullOutput();
    COMMPOOL_TRY(CheckEntryBytes("block", entry_bytes, sizeof(*block)));
    const Result<std::shared_ptr<BlockOwner>> owner = runtime.addresses().OwnerOf(AddressOf(pointer));
    found = owner.ok();
    if (!found) return Status();
    const Result<commpool_block> holder = (*owner)->FindBlock(AddressOf(pointer));
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
    output.Write(found->blocks().List(), [&](const commpool_block& block) { return runtime.Shown(block); });
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
