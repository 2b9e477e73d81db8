#include "src/registration/introduction.h"

#include <cstring>
#include <utility>

#include "src/base/host_identity.h"
#include "src/registration/rank_names.h"

namespace commpool::internal {

namespace {

template <size_t N>
void CopyText(const std::string& text, std::array<char, N>& target) {
  std::strncpy(target.data(), text.c_str(), N - 1);
}

Status Listen(Introduction& mine, std::optional<Listener>& listener) {
  Result<HashKey> key = RandomKey();
  if (!key.ok()) return key.status();
  Result<Listener> opened = Listener::Open();
  if (!opened.ok()) return opened.status();
  mine.key = *key;
  CopyText(opened->address(), mine.address);
  CopyText(opened->why_local(), mine.why);
  listener = std::move(*opened);
  return Status();
}

// "rank 2", "ranks 2, 5 and 4 others": bounded, however many there are.
std::string OfOtherHosts(const std::vector<Introduction>& all) {
  constexpr size_t kNamed = 8;
  std::vector<size_t> ranks;
  for (const Introduction& one : all) {
    if (one.host != all.front().host) ranks.push_back(one.rank);
  }
  if (ranks.empty()) return "";
  return (ranks.size() == 1 ? "rank " : "ranks ") + SomeOf(ranks, kNamed, ", ");
}

}  // namespace

Introduction Introduce(int rank, std::optional<Listener>& listener) {
  Introduction mine;
  mine.rank = static_cast<uint64_t>(rank);
  mine.host = HostIdentity();
  if (rank != 0) return mine;
  const Status status = Listen(mine, listener);
  if (!status.ok()) CopyText(status.message(), mine.why);
  return mine;
}

Status CheckReach(const std::vector<Introduction>& all) {
  const Introduction& first = all.front();
  const std::string why = first.why.data();
  constexpr const char* kAdvice =
      "; COMMPOOL_INTERFACE names the interface to use, or an address of it, on rank 0's host";
  if (first.address[0] == '\0') {
    return Status(StatusCode::kRemoteFailure,
                  "create: rank 0 cannot listen for the agreement channel: " + why + kAdvice);
  }
  const std::string elsewhere = OfOtherHosts(all);
  if (why.empty() || elsewhere.empty()) return Status();
  return Status(StatusCode::kFailedPrecondition, "create: rank 0 listens at " + std::string(first.address.data()) +
                                                     ", which only its own host reaches, and " + elsewhere +
                                                     " run elsewhere (" + why + ")" + kAdvice);
}

}  // namespace commpool::internal
