// Agreement over TCP: rank 0 gathers, decides, and tells all.
//
// It has two stars of connections: one for agreement, and one for what ranks tell in the background. A star is enough
// for hundreds of ranks (src/registration/README.md has the cost on paper), and it lets one rank name all that are
// missing. Rank 0 waits until the deadline; the others wait a little longer, so that they hear its verdict.
#ifndef COMMPOOL_SRC_REGISTRATION_TCP_CHANNEL_H_
#define COMMPOOL_SRC_REGISTRATION_TCP_CHANNEL_H_

#include <chrono>
#include <memory>
#include <string>

#include "commpool/status.h"
#include "src/base/keyed_hash.h"
#include "src/base/socket.h"
#include "src/registration/agreement_channel.h"

namespace commpool::internal {

struct TcpChannelOptions {
  int rank = 0;
  int ranks = 1;
  std::chrono::milliseconds deadline{60000};
  HashKey key{};  // see AdmissionOptions
};

// Rank 0: accepts every other rank. Others: connect to rank 0's address.
Result<std::unique_ptr<AgreementChannel>> AcceptTcpChannel(const TcpChannelOptions& options, Listener listener);
Result<std::unique_ptr<AgreementChannel>> ConnectTcpChannel(const TcpChannelOptions& options,
                                                            const std::string& address);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_TCP_CHANNEL_H_
