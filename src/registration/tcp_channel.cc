#include "src/registration/tcp_channel.h"

#include <utility>

#include "src/registration/rank_admission.h"
#include "src/registration/wire.h"

namespace commpool::internal {

namespace {

// The others wait this much longer than rank 0, so that its verdict, which names the missing, arrives first.
constexpr std::chrono::milliseconds kVerdictGrace{5000};
constexpr uint64_t kLongestMessage = uint64_t{1} << 30;

// The two connections of a rank to rank 0.
enum Lane : size_t { kAgreement, kBackground, kLanes };

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
  // Of rank 0: connection i leads to rank i + 1; of the others: one, to rank 0.
  TcpChannel(const TcpChannelOptions& options, std::vector<Connection> agreement, std::vector<Connection> background)
      : options_(options), connections_(std::move(agreement)), background_(std::move(background)) {}

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

AdmissionOptions AdmissionOf(const TcpChannelOptions& options) {
  return {options.rank, options.ranks, kLanes, options.deadline, options.secret};
}

}  // namespace

Result<std::unique_ptr<AgreementChannel>> AcceptTcpChannel(const TcpChannelOptions& options, Listener listener) {
  AdmittedRanks ranks = AdmitRanks(AdmissionOf(options), std::move(listener));
  if (!ranks.status.ok()) return ranks.status;
  return std::unique_ptr<AgreementChannel>(
      std::make_unique<TcpChannel>(options, std::move(ranks.lanes[kAgreement]), std::move(ranks.lanes[kBackground])));
}

Result<std::unique_ptr<AgreementChannel>> ConnectTcpChannel(const TcpChannelOptions& options,
                                                            const std::string& address) {
  Result<std::vector<Connection>> lanes = JoinRankZero(AdmissionOf(options), address);
  if (!lanes.ok()) return lanes.status();
  std::vector<Connection> agreement, background;
  agreement.push_back(std::move((*lanes)[kAgreement]));
  background.push_back(std::move((*lanes)[kBackground]));
  return std::unique_ptr<AgreementChannel>(
      std::make_unique<TcpChannel>(options, std::move(agreement), std::move(background)));
}

}  // namespace commpool::internal
