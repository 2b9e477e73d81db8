// A decision that shows what a channel carries: the bytes of all ranks, and each rank's own number.
#ifndef COMMPOOL_TESTS_REGISTRATION_JOINED_H_
#define COMMPOOL_TESTS_REGISTRATION_JOINED_H_

#include <string>
#include <vector>

#include "src/library/registration/agreement_channel.h"

namespace commpool::internal {

inline Decision Join(const std::vector<std::string>& contents) {
  Decision decision;
  for (const std::string& content : contents) {
    decision.common += "[" + content + "]";
    decision.single.push_back(std::to_string(decision.single.size()));
  }
  return decision;
}

// Everything that the rank gets, as "[first][second] 1".
inline Result<std::string> JoinOver(AgreementChannel& channel, const std::string& mine, const std::string& step) {
  Result<Verdict> verdict = channel.Decide(mine, step, Join);
  if (!verdict.ok()) return verdict.status();
  return verdict->common + " " + verdict->single;
}

}  // namespace commpool::internal

#endif  // COMMPOOL_TESTS_REGISTRATION_JOINED_H_
