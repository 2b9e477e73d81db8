// This program once more, as a process of its own: PyTorch reads its settings when its library is loaded, and each
// allocator begins with an empty device. One thread.
#ifndef COMMPOOL_TOOLS_CLI_REPLAY_PEERS_PEER_PROCESS_H_
#define COMMPOOL_TOOLS_CLI_REPLAY_PEERS_PEER_PROCESS_H_

#include <string>
#include <vector>

#include "commpool/status.h"

namespace commpool::cli {

// What it writes to stdout. kDriverError, with the last line of that, where it ends with another code than 0; then and
// on kDeadlineExceeded, after `limit_s` seconds, it is gone. `variables` ("NAME=VALUE") go before the environment's.
Result<std::string> RunAgain(const std::vector<std::string>& arguments, const std::vector<std::string>& variables,
                             int limit_s);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_REPLAY_PEERS_PEER_PROCESS_H_
