#include "src/registration/tcp_channel.h"

#include <chrono>
#include <utility>

#include "src/registration/rank_admission.h"
#include "src/registration/wire.h"

namespace commpool::internal {

namespace {

// The others wait this much longer than rank 0, so that its verdict, which names the missing, arrives first.
constexpr std::chrono::milliseconds kVerdictGrace{1000};
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

  Result<Verdict> Decide(const std::string& mine, const std::string& step, const Decider& decide) override {
    if (!failure_.ok()) return failure_.Under(step + ": the channel failed before");
    ++sequence_;
    begun_ = std::chrono::steady_clock::now();
    Result<Verdict> verdict = options_.rank == 0 ? GatherAndDecide(mine, step, decide) : SendAndHear(mine, step);
    if (!verdict.ok()) failure_ = verdict.status();
    return verdict;
  }

 private:
  // Hears all ranks even where one fails, so that the verdict names every missing one.
  Result<Verdict> GatherAndDecide(const std::string& mine, const std::string& step, const Decider& decide) {
    const Deadline deadline = begun_ + options_.deadline;
    std::vector<std::string> contents = {mine};
    std::string missing = not_reached_;
    StatusCode code = missing.empty() ? StatusCode::kOk : StatusCode::kRemoteFailure;
    for (size_t index = 0; index < connections_.size(); ++index) {
      Result<Frame> frame = ReceiveFrame(connections_[index], sequence_, deadline);
      contents.push_back(frame.ok() ? std::move(frame->contents) : std::string());
      if (frame.ok()) continue;
      code = frame.status().code();
      missing += NameOf(index) + ": " + frame.status().message() + "; ";
    }
    if (code == StatusCode::kOk) return Spread(decide(contents), step);
    const Status failure = Failure(step, code, missing);
    // Best effort: those who are there learn who is not.
    for (Connection& connection : connections_) {
      static_cast<void>(SendFrame(connection, sequence_, code, failure.message(), DeadlineAfter(options_.deadline)));
    }
    return failure;
  }

  // Once a rank may have the decision this one is bound by it too: who could not be reached is said in the next round.
  Verdict Spread(Decision decision, const std::string& step) {
    const Deadline deadline = DeadlineAfter(options_.deadline);
    decision.single.resize(connections_.size() + 1);
    for (size_t index = 0; index < connections_.size(); ++index) {
      WireWriter writer;
      writer.Text(decision.common);
      writer.Text(decision.single[index + 1]);
      const Status status = SendFrame(connections_[index], sequence_, StatusCode::kOk, writer.Take(), deadline);
      if (!status.ok()) not_reached_ += NameOf(index) + " was lost at " + step + ": " + status.message() + "; ";
    }
    return {std::move(decision.common), std::move(decision.single[0])};
  }

  Result<Verdict> SendAndHear(const std::string& mine, const std::string& step) {
    const Deadline deadline = begun_ + options_.deadline + kVerdictGrace;
    // Where rank 0 has left, its verdict may be there all the same: so a failure to send is no answer yet.
    const Status sent = SendFrame(connections_[0], sequence_, StatusCode::kOk, mine, deadline);
    Result<Frame> frame = ReceiveFrame(connections_[0], sequence_, deadline);
    if (!frame.ok()) {
      const Status& why = sent.ok() ? frame.status() : sent;
      return Failure(step, why.code(), "rank 0: " + why.message() + "; ");
    }
    if (frame->code != StatusCode::kOk) return Status(frame->code, frame->contents);
    WireReader reader(frame->contents);
    Verdict verdict{reader.Text()};
    verdict.single = reader.Text();
    if (!reader.ok()) return Failure(step, StatusCode::kInternal, "rank 0: it sent too few bytes; ");
    return verdict;
  }

  static std::string NameOf(size_t index) { return "rank " + std::to_string(index + 1); }

  // `missing` is a list that ends in "; ".
  Status Failure(const std::string& step, StatusCode code, const std::string& missing) const {
    const auto waited =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun_);
    return Status(code, step + ": not all of " + std::to_string(options_.ranks) + " ranks came within " +
                            std::to_string(waited.count()) + " ms; missing: " + missing.substr(0, missing.size() - 2));
  }

  const TcpChannelOptions options_;
  std::vector<Connection> connections_;
  std::vector<Connection> background_;
  uint64_t sequence_ = 0;
  Deadline begun_;           // of this round
  std::string not_reached_;  // of rank 0: whom a decision did not reach
  Status failure_;
};

AdmissionOptions AdmissionOf(const TcpChannelOptions& options) {
  return {options.rank, options.ranks, kLanes, options.deadline, options.key};
}

}  // namespace

Result<std::unique_ptr<AgreementChannel>> AcceptTcpChannel(const TcpChannelOptions& options, Listener listener) {
  AdmittedRanks ranks = AdmitRanks(AdmissionOf(options), std::move(listener));
  if (!ranks.status.ok()) {
    // Those who came hear in their first round who did not.
    for (Connection& connection : ranks.lanes[kAgreement]) {
      if (!connection.valid()) continue;
      static_cast<void>(
          SendFrame(connection, 1, ranks.status.code(), ranks.status.message(), DeadlineAfter(options.deadline)));
    }
    return ranks.status;
  }
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
