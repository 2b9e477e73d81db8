#include <algorithm>

#include "tools/cli/allreduce.h"
#include "tools/cli/command.h"

namespace commpool::cli {

int Judge(const AllReduceOptions& options, const std::vector<AllReduceRow>& rows) {
  const auto any = [&](auto&& predicate) { return std::any_of(rows.begin(), rows.end(), predicate); };
  if (any([](const AllReduceRow& row) { return row.wrong > 0; })) return kWrongResult;
  if (options.asked == UsedRegistration::kWindow) {
    const bool unused = any([](const AllReduceRow& row) { return row.used != UsedRegistration::kWindow; });
    return unused ? kNotAsAsked : kSuccess;
  }
  // NCCL reaches cudaMalloc memory through legacy IPC only, which is off unless NCCL_LEGACY_CUDA_REGISTER=1.
  if (options.asked == UsedRegistration::kLocal && options.backing != Backing::kCuda) {
    const bool usable = any([](const AllReduceRow& row) { return row.could_use_local; });
    const bool used = any([](const AllReduceRow& row) { return row.used == UsedRegistration::kLocal; });
    return usable && !used ? kNotAsAsked : kSuccess;
  }
  return kSuccess;
}

}  // namespace commpool::cli
