// A decision by which tests see what a channel carries: everybody's bytes, and each rank's number for itself.
#ifndef COMMPOOL_TESTS_REGISTRATION_JOINED_H_
#define COMMPOOL_TESTS_REGISTRATION_JOINED_H_

#include <string>
#include <vector>

#include "src/registration/agreement_channel.h"

namespace commpool::internal {

inline Decision Join(const std::vector<std::string>& contents) {
  Decision decision;
  for (const std::string& content : contents) {
    decision.common += "[" + content + "]";
    decision.single.push_back(std::to_string(decision.single.size()));
  }
  return decision;
}

// "[first][second] 1": all that the rank gets.
inline Result<std::string> JoinOver(AgreementChannel& channel, const std::string& mine, const std::string& step) {
  Result<Verdict> verdict = channel.Decide(mine, step, Join);
  if (!verdict.ok()) return verdict.status();
  return verdict->common + " " + verdict->single;
}

}  // namespace commpool::internal

#endif  // COMMPOOL_TESTS_REGISTRATION_JOINED_H_
