#include "src/registration/introduction.h"

#include <algorithm>
#include <utility>

#include "src/base/interface.h"
#include "src/base/try.h"
#include "src/registration/rank_names.h"

namespace commpool::internal {

namespace {

Status Listen(Introduction& mine, std::optional<Listener>& listener) {
  mine.key = COMMPOOL_TRY(RandomKey());
  Listener opened = COMMPOOL_TRY(Listener::Open());
  mine.address = opened.address();
  mine.why = opened.why_local();
  listener = std::move(opened);
  return Status();
}

// "rank 2", "ranks 2, 5 and 4 others": bounded, however many there are.
std::string OfOtherHosts(const std::vector<Introduction>& all) {
  std::vector<size_t> ranks;
  for (const Introduction& one : all) {
    if (one.host != all.front().host) ranks.push_back(one.rank);
  }
  return ranks.empty() ? "" : NamesOfRanks(ranks, 8);
}

}  // namespace

Introduction Introduce(int rank, std::optional<Listener>& listener) {
  Introduction mine;
  mine.rank = static_cast<uint64_t>(rank);
  mine.host = HostIdentity();
  if (rank != 0) return mine;
  const Status status = Listen(mine, listener);
  if (!status.ok()) mine.why = status.message();
  return mine;
}

std::string Pad(const Introduction& introduction) {
  Introduction mine = introduction;
  std::string bytes = Encode(mine);
  if (bytes.size() > kIntroductionBytes) {
    mine.why.resize(mine.why.size() - std::min(mine.why.size(), bytes.size() - kIntroductionBytes));
    bytes = Encode(mine);
  }
  bytes.resize(kIntroductionBytes);
  return bytes;
}

Result<std::vector<Introduction>> DecodePadded(std::vector<std::string> introductions) {
  for (std::string& bytes : introductions) {
    const auto contents = static_cast<size_t>(SizeOfMessage(bytes));
    const bool zeros = contents <= bytes.size() && bytes.find_first_not_of('\0', contents) == std::string::npos;
    if (zeros) bytes.resize(contents);
  }
  return DecodeAll<Introduction>(introductions);
}

Status CheckReach(const std::vector<Introduction>& all) {
  const Introduction& first = all.front();
  constexpr const char* kAdvice =
      "; COMMPOOL_INTERFACE names the interface to use, or an address of it, on rank 0's host";
  if (first.address.empty()) {
    return Status(StatusCode::kRemoteFailure,
                  "create: rank 0 cannot listen for the agreement channel: " + first.why + kAdvice);
  }
  const std::string elsewhere = OfOtherHosts(all);
  if (first.why.empty() || elsewhere.empty()) return Status();
  return Status(StatusCode::kFailedPrecondition, "create: rank 0 listens at " + first.address +
                                                     ", which only its own host reaches, and " + elsewhere +
                                                     " run elsewhere (" + first.why + ")" + kAdvice);
}

}  // namespace commpool::internal
