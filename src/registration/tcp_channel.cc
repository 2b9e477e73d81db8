#include "src/registration/tcp_channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "src/registration/wire.h"

namespace commpool::internal {

namespace {

constexpr uint64_t kMagic = 0x636f6d6d706f6f6c;  // "commpool"
// The others wait this much longer than rank 0, so that its verdict, which names the missing, arrives first.
constexpr std::chrono::milliseconds kVerdictGrace{5000};
constexpr uint64_t kLongestMessage = uint64_t{1} << 30;

// The two connections of a rank to rank 0.
enum class Star : uint64_t { kAgreement, kBackground };
constexpr Star kStars[] = {Star::kAgreement, Star::kBackground};

struct Hello {
  uint64_t magic = kMagic;
  uint64_t secret = 0;
  uint64_t rank = 0;
  Star star = Star::kAgreement;
};

// Of rank 0: connection i leads to rank i + 1; of the others: one, to rank 0.
struct Stars {
  std::vector<Connection> agreement;
  std::vector<Connection> background;

  std::vector<Connection>& Of(Star star) { return star == Star::kAgreement ? agreement : background; }
  const std::vector<Connection>& Of(Star star) const { return star == Star::kAgreement ? agreement : background; }
};

struct FrameHeader {
  uint64_t sequence = 0;
  uint64_t code = 0;  // a StatusCode: whether the contents are everybody's bytes or why there are none
  uint64_t bytes = 0;
};

Status SendFrame(Connection& connection, uint64_t sequence, StatusCode code, const std::string& contents,
                 Deadline deadline) {
  const FrameHeader header{sequence, static_cast<uint64_t>(code), contents.size()};
  Status status = connection.Send(&header, sizeof(header), deadline);
  if (!status.ok()) return status;
  return connection.Send(contents.data(), contents.size(), deadline);
}

struct Frame {
  StatusCode code = StatusCode::kOk;
  std::string contents;
};

Result<Frame> ReceiveFrame(Connection& connection, uint64_t sequence, Deadline deadline) {
  FrameHeader header;
  Status status = connection.Receive(&header, sizeof(header), deadline);
  if (!status.ok()) return status;
  if (header.sequence != sequence || header.bytes > kLongestMessage) {
    return Status(StatusCode::kDisagreement, "ranks are out of step: step " + std::to_string(header.sequence) +
                                                 " arrived where step " + std::to_string(sequence) + " was expected");
  }
  Frame frame{static_cast<StatusCode>(header.code), std::string(header.bytes, '\0')};
  status = connection.Receive(frame.contents.data(), frame.contents.size(), deadline);
  if (!status.ok()) return status;
  return frame;
}

class TcpChannel : public AgreementChannel {
 public:
  TcpChannel(const TcpChannelOptions& options, Stars stars)
      : options_(options), connections_(std::move(stars.agreement)), background_(std::move(stars.background)) {}

  int rank() const override { return options_.rank; }
  int ranks() const override { return options_.ranks; }
  std::vector<Connection> TakeBackgroundConnections() override { return std::move(background_); }

  Result<std::vector<std::string>> AllGather(const std::string& mine, const std::string& step) override {
    if (!failure_.ok()) return failure_.Under(step + ": the channel failed before");
    ++sequence_;
    Result<std::vector<std::string>> contents =
        options_.rank == 0 ? GatherAndSpread(mine, step) : SendAndHear(mine, step);
    if (!contents.ok()) failure_ = contents.status();
    return contents;
  }

 private:
  // Connection i leads to rank i + 1. Hears all of them even where one fails, so that the verdict names every missing
  // one.
  Result<std::vector<std::string>> GatherAndSpread(const std::string& mine, const std::string& step) {
    const Deadline deadline = DeadlineAfter(options_.deadline);
    std::vector<std::string> contents = {mine};
    std::string missing;
    StatusCode code = StatusCode::kOk;
    for (size_t index = 0; index < connections_.size(); ++index) {
      Result<Frame> frame = ReceiveFrame(connections_[index], sequence_, deadline);
      contents.push_back(frame.ok() ? std::move(frame->contents) : std::string());
      if (frame.ok()) continue;
      code = frame.status().code();
      missing += (missing.empty() ? "" : "; ") + std::string("rank ") + std::to_string(index + 1) + ": " +
                 frame.status().message();
    }
    if (code == StatusCode::kOk) {
      WireWriter writer;
      for (const std::string& content : contents) writer.Text(content);
      const std::string spread = writer.Take();
      Status status = Spread(StatusCode::kOk, spread);
      if (!status.ok()) return Failure(step, status.code(), status.message());
      return contents;
    }
    static_cast<void>(Spread(code, missing));  // best effort: those who are there learn who is not
    return Failure(step, code, missing);
  }

  Status Spread(StatusCode code, const std::string& contents) {
    const Deadline deadline = DeadlineAfter(options_.deadline);
    Status first;
    for (size_t index = 0; index < connections_.size(); ++index) {
      Status status = SendFrame(connections_[index], sequence_, code, contents, deadline);
      if (!status.ok() && first.ok()) first = status.Under("rank " + std::to_string(index + 1));
    }
    return first;
  }

  Result<std::vector<std::string>> SendAndHear(const std::string& mine, const std::string& step) {
    const Deadline deadline = DeadlineAfter(options_.deadline + kVerdictGrace);
    Status status = SendFrame(connections_[0], sequence_, StatusCode::kOk, mine, deadline);
    if (!status.ok()) return Failure(step, status.code(), "rank 0: " + status.message());
    Result<Frame> frame = ReceiveFrame(connections_[0], sequence_, deadline);
    if (!frame.ok()) return Failure(step, frame.status().code(), "rank 0: " + frame.status().message());
    if (frame->code != StatusCode::kOk) return Failure(step, frame->code, frame->contents);

    WireReader reader(frame->contents);
    std::vector<std::string> contents;
    for (int rank = 0; rank < options_.ranks; ++rank) contents.push_back(reader.Text());
    if (!reader.ok()) return Failure(step, StatusCode::kInternal, "rank 0 sent too few bytes");
    return contents;
  }

  Status Failure(const std::string& step, StatusCode code, const std::string& why) const {
    return Status(code, step + ": rank " + std::to_string(options_.rank) + " of " + std::to_string(options_.ranks) +
                            " could not agree with the others within " + std::to_string(options_.deadline.count()) +
                            " ms; missing: " + why);
  }

  const TcpChannelOptions options_;
  std::vector<Connection> connections_;
  std::vector<Connection> background_;
  uint64_t sequence_ = 0;
  Status failure_;
};

// The connections to rank 0, with the rank that each has named. A stranger that says nothing delays nobody.
class RanksToCome {
 public:
  explicit RanksToCome(const TcpChannelOptions& options) : options_(options) {
    for (const Star star : kStars) stars_.Of(star).resize(others());
  }

  bool complete() const { return Missing().empty(); }
  Stars Take() { return std::move(stars_); }

  // " 1 3".
  std::string Missing() const {
    std::string missing;
    for (size_t index = 0; index < others(); ++index) {
      const bool here = stars_.agreement[index].valid() && stars_.background[index].valid();
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
        stars_.Of(hello.star)[hello.rank - 1] = std::move(connection);
      }  // else it has gone, or is a stranger, or a rank that tried twice
    }
    silent_ = std::move(still_silent);
  }

 private:
  bool Expected(const Hello& hello) const {
    return hello.magic == kMagic && hello.secret == options_.secret && hello.rank >= 1 && hello.rank <= others() &&
           hello.star <= Star::kBackground && !stars_.Of(hello.star)[hello.rank - 1].valid();
  }
  size_t others() const { return static_cast<size_t>(options_.ranks - 1); }

  const TcpChannelOptions& options_;
  Stars stars_;
  std::vector<Connection> silent_;
};

}  // namespace

Result<std::unique_ptr<AgreementChannel>> AcceptTcpChannel(const TcpChannelOptions& options, Listener listener) {
  const Deadline deadline = DeadlineAfter(options.deadline);
  RanksToCome ranks(options);
  while (!ranks.complete()) {
    Result<Connection> connection = listener.Accept(ranks.NextLook(deadline));
    const bool over = std::chrono::steady_clock::now() >= deadline;
    if (connection.ok()) ranks.Greet(std::move(*connection));
    ranks.ReadHellos();
    if (connection.ok() || ranks.complete()) continue;
    if (connection.status().code() == StatusCode::kDeadlineExceeded && !over) continue;
    return Status(connection.status().code(), "agreement channel: these ranks did not connect to " +
                                                  listener.address() + ":" + ranks.Missing() + " (" +
                                                  connection.status().message() +
                                                  "): is the network between them open? COMMPOOL_INTERFACE names "
                                                  "the interface to use");
  }
  return std::unique_ptr<AgreementChannel>(std::make_unique<TcpChannel>(options, ranks.Take()));
}

Result<std::unique_ptr<AgreementChannel>> ConnectTcpChannel(const TcpChannelOptions& options,
                                                            const std::string& address) {
  const Deadline deadline = DeadlineAfter(options.deadline);
  Stars stars;
  for (const Star star : kStars) {
    Result<Connection> connection = Connect(address, deadline);
    if (!connection.ok()) return connection.status();
    const Hello hello{kMagic, options.secret, static_cast<uint64_t>(options.rank), star};
    Status status = connection->Send(&hello, sizeof(hello), deadline);
    if (!status.ok()) return status;
    stars.Of(star).push_back(std::move(*connection));
  }
  return std::unique_ptr<AgreementChannel>(std::make_unique<TcpChannel>(options, std::move(stars)));
}

}  // namespace commpool::internal
