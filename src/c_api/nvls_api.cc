// The C ABI: whether NVLink multicast can serve a range.
#include <string>
#include <utility>

#include "commpool/commpool.h"
#include "src/base/of_this_thread.h"
#include "src/base/try.h"
#include "src/c_api/boundary.h"
#include "src/c_api/process_runtime.h"
#include "src/pool/nvls_eligibility.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

struct LastReason {};  // the thread's last answer

}  // namespace

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
    if (reason != nullptr) *reason = last == nullptr ? "" : last->c_str();  // the thread is ending
    return Status();
  });
}
