#include "src/registration/rank_admission.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace commpool::internal {

namespace {

constexpr uint64_t kMagic = 0x636f6d6d706f6f6c;  // "commpool"

struct Hello {
  uint64_t magic = kMagic;
  uint64_t secret = 0;
  uint64_t rank = 0;
  uint64_t lane = 0;
};

// The connections to rank 0, with the rank that each has named. A stranger that says nothing delays nobody.
class RanksToCome {
 public:
  explicit RanksToCome(const AdmissionOptions& options) : options_(options), lanes_(options.lanes) {
    for (std::vector<Connection>& lane : lanes_) lane.resize(others());
  }

  bool complete() const { return Missing().empty(); }
  std::vector<std::vector<Connection>> Take() { return std::move(lanes_); }

  // " 1 3".
  std::string Missing() const {
    std::string missing;
    for (size_t index = 0; index < others(); ++index) {
      const bool here =
          std::all_of(lanes_.begin(), lanes_.end(), [&](const auto& lane) { return lane[index].valid(); });
      if (!here) missing += " " + std::to_string(index + 1);
    }
    return missing;
  }

  void Greet(Connection connection) { silent_.push_back(std::move(connection)); }

  // While someone has not spoken, the port is left for a moment at a time to look whether it has.
  Deadline NextLook(Deadline deadline) const {
    return silent_.empty() ? deadline : std::min(deadline, DeadlineAfter(std::chrono::milliseconds(5)));
  }

  void ReadHellos() {
    std::vector<Connection> still_silent;
    for (Connection& connection : silent_) {
      Hello hello;
      const ssize_t there = recv(connection.descriptor(), &hello, sizeof(hello), MSG_PEEK | MSG_DONTWAIT);
      const bool nothing_yet = there < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
      if (nothing_yet || (there > 0 && there < static_cast<ssize_t>(sizeof(hello)))) {
        still_silent.push_back(std::move(connection));
      } else if (there > 0 && connection.Receive(&hello, sizeof(hello), DeadlineAfter({})).ok() && Expected(hello)) {
        lanes_[hello.lane][hello.rank - 1] = std::move(connection);
      }  // else it has gone, or is a stranger, or a rank that tried twice
    }
    silent_ = std::move(still_silent);
  }

 private:
  bool Expected(const Hello& hello) const {
    return hello.magic == kMagic && hello.secret == options_.secret && hello.rank >= 1 && hello.rank <= others() &&
           hello.lane < lanes_.size() && !lanes_[hello.lane][hello.rank - 1].valid();
  }
  size_t others() const { return static_cast<size_t>(options_.ranks - 1); }

  const AdmissionOptions& options_;
  std::vector<std::vector<Connection>> lanes_;
  std::vector<Connection> silent_;
};

Status NotAllCame(const std::string& address, const std::string& missing, const Status& last) {
  return Status(last.code(), "agreement channel: these ranks did not connect to " + address + ":" + missing + " (" +
                                 last.message() +
                                 "): is the network between them open? COMMPOOL_INTERFACE names the interface to use");
}

}  // namespace

AdmittedRanks AdmitRanks(const AdmissionOptions& options, Listener listener) {
  const Deadline deadline = DeadlineAfter(options.deadline);
  RanksToCome ranks(options);
  Status status;
  while (status.ok() && !ranks.complete()) {
    Result<Connection> connection = listener.Accept(ranks.NextLook(deadline));
    const bool over = std::chrono::steady_clock::now() >= deadline;
    if (connection.ok()) ranks.Greet(std::move(*connection));
    ranks.ReadHellos();
    if (connection.ok() || ranks.complete()) continue;
    if (connection.status().code() == StatusCode::kDeadlineExceeded && !over) continue;
    status = NotAllCame(listener.address(), ranks.Missing(), connection.status());
  }
  return {ranks.Take(), std::move(status)};
}

Result<std::vector<Connection>> JoinRankZero(const AdmissionOptions& options, const std::string& address) {
  const Deadline deadline = DeadlineAfter(options.deadline);
  std::vector<Connection> lanes;
  for (size_t lane = 0; lane < options.lanes; ++lane) {
    Result<Connection> connection = Connect(address, deadline);
    if (!connection.ok()) return connection.status();
    const Hello hello{kMagic, options.secret, static_cast<uint64_t>(options.rank), lane};
    Status status = connection->Send(&hello, sizeof(hello), deadline);
    if (!status.ok()) return status;
    lanes.push_back(std::move(*connection));
  }
  return lanes;
}

}  // namespace commpool::internal
