// A decision that shows what a channel carries: the bytes of all ranks, as "[first][second]".
#pragma once

#include <string>
#include <vector>

#include "src/library/registration/agreement_channel.h"

namespace commpool::internal {

inline std::string Join(const std::vector<std::string>& contents) {
  std::string all;
  for (const std::string& content : contents) all += "[" + content + "]";
  return all;
}

inline Result<std::string> JoinOver(AgreementChannel& channel, const std::string& mine, const std::string& step) {
  return channel.Decide(mine, step, Join);
}

}  // namespace commpool::internal
