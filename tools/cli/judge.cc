#include <algorithm>

#include "tools/cli/allreduce.h"
#include "tools/common/command.h"

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

std::string WhyUnused(const AllReduceOptions& options, const std::vector<AllReduceRow>& rows, int ranks) {
  const auto count = [&](auto&& predicate) { return std::count_if(rows.begin(), rows.end(), predicate); };
  const auto used = count([&](const AllReduceRow& row) { return row.used == options.asked; });
  const auto all = static_cast<int64_t>(rows.size());
  const bool local = options.asked == UsedRegistration::kLocal;
  if (options.asked == UsedRegistration::kNone || used == all || (local && used > 0)) return "";
  std::string text = std::string(Name(options.asked)) + " was asked for and not used, as NCCL's log says, in " +
                     (used == 0 ? "any row" : std::to_string(all - used) + " of " + Counted(all, "row")) + ": ";
  if (ranks == 1) return text + "one rank has nobody to send to; start 2 or more with mpirun";
  if (!local)
    return text +
           "NCCL has no symmetric kernel for the size or finds another algorithm faster, or the GPUs "
           "are not linked by NVLink";
  if (options.backing == Backing::kCuda) {
    return text +
           "NCCL registers cudaMalloc memory only where NCCL_LEGACY_CUDA_REGISTER=1 (--backing vmm or nccl needs "
           "no setting)";
  }
  const bool usable = count([](const AllReduceRow& row) { return row.could_use_local; }) > 0;
  if (usable) return text + "NCCL ran a protocol that could have used it";
  return text + "NCCL uses it with the protocol SIMPLE alone, which it chooses for large sizes; try --bytes 8M";
}

}  // namespace commpool::cli
