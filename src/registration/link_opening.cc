#include "src/registration/link_opening.h"

#include <utility>
#include <vector>

#include "src/registration/rank_admission.h"

namespace commpool::internal {

namespace {

AdmissionOptions AdmissionOf(const LinkOpening& opening) {
  return {.rank = opening.rank, .ranks = opening.ranks, .deadline = opening.deadline, .key = opening.key};
}

// The id tells links apart, and nothing of the key.
HomeLinkOptions LinkOf(const LinkOpening& opening) {
  constexpr char kPurpose[] = "link";
  return {.rank = opening.rank,
          .ranks = opening.ranks,
          .id = KeyedHash(opening.key, kPurpose, sizeof(kPurpose)) | 1,
          .deadline = opening.deadline};
}

// What they read as the decision of their first round.
void TellThatSomeAreMissing(std::vector<Connection> connections, const Status& why) {
  std::string bytes;
  AppendTo(bytes, {FrameKind::kDecision, why.code(), kFirstChannel, 1, why.message()});
  for (Connection& connection : connections) {
    if (connection.valid()) static_cast<void>(connection.Send(bytes.data(), bytes.size(), DeadlineAfter({})));
  }
}

}  // namespace

Result<std::shared_ptr<HomeLink>> AcceptLink(const LinkOpening& opening, Listener listener) {
  AdmittedRanks ranks = AdmitRanks(AdmissionOf(opening), std::move(listener));
  if (!ranks.status.ok()) {
    TellThatSomeAreMissing(std::move(ranks.lanes[0]), ranks.status);
    return ranks.status;
  }
  return HomeLink::Make(LinkOf(opening), std::move(ranks.lanes[0]));
}

Result<std::shared_ptr<HomeLink>> JoinLink(const LinkOpening& opening, const std::string& address) {
  Result<std::vector<Connection>> connections = JoinRankZero(AdmissionOf(opening), address);
  if (!connections.ok()) return connections.status();
  return HomeLink::Make(LinkOf(opening), std::move(*connections));
}

}  // namespace commpool::internal
