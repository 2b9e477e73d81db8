// The messages for one channel of a home link. Any reader of the link fills it, the channel empties it. The link's lock
// guards it.
#ifndef COMMPOOL_SRC_REGISTRATION_MAILBOX_H_
#define COMMPOOL_SRC_REGISTRATION_MAILBOX_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "src/base/host_reserve.h"
#include "src/base/socket.h"
#include "src/registration/agreement_channel.h"
#include "src/registration/frame_stream.h"

namespace commpool::internal {

struct Mailbox {
  // Messages of rounds. On rank 0 those of the others, by rank; on the others rank 0's decisions, in place 0. There may
  // be several decisions: rank 0 tells at once if the next round cannot happen.
  ReservedVector<ReservedDeque<Frame>> rounds;
  size_t ranks_heard = 0;
  Deadline first_came;  // when the round's first message came

  ReservedMap<int, std::string> left;  // ranks that use the channel no more, and why
  ReservedDeque<BackgroundMessage> background;

  explicit Mailbox(int ranks) : rounds(static_cast<size_t>(ranks)) {}

  void PutRound(int rank, Frame frame) {
    ReservedDeque<Frame>& heard = rounds[static_cast<size_t>(rank)];
    if (ranks_heard == 0) first_came = std::chrono::steady_clock::now();
    if (heard.empty()) ++ranks_heard;
    heard.push_back(std::move(frame));
  }
  // Takes the oldest message of each rank, by rank.
  ReservedVector<std::optional<Frame>> TakeRound() {
    ReservedVector<std::optional<Frame>> first(rounds.size());
    ranks_heard = 0;
    for (size_t rank = 0; rank < rounds.size(); ++rank) {
      ReservedDeque<Frame>& heard = rounds[rank];
      if (heard.empty()) continue;
      first[rank] = std::move(heard.front());
      heard.pop_front();
      if (!heard.empty()) ++ranks_heard;
    }
    return first;
  }
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_MAILBOX_H_
