// Agreement of a symmetric pool's ranks over MPI, for programs that have MPI: no port is opened, no address needed.
//
//   MpiAgreement agreement(MPI_COMM_WORLD);
//   Pool pool = Pool::create({.symmetric_across = communicator, .agreement = agreement}).value();
//
// It sends and receives, and polls until the deadline. So the other ranks name a rank that does not come, and do not
// hang. Each rank sends to each other rank: R - 1 messages a round.
//
// Header-only, C++17, MPI 3. Each call checks that MPI's thread level is enough: with MPI_THREAD_SINGLE or FUNNELED the
// program makes the pool's collective calls on MPI's main thread; with SERIALIZED on any thread, while no other thread
// is in MPI; calls for several pools (PoolGroup) need MULTIPLE and an agreement for each pool.
#ifndef COMMPOOL_MPI_H_
#define COMMPOOL_MPI_H_

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "commpool/pool.h"
#include "commpool/status.h"

namespace commpool {
inline namespace v1 {

// One thread at a time. Lives as long as the pools that use it, and ends before MPI_Finalize.
class MpiAgreement {
 public:
  // COLLECTIVE over `ranks`, which it duplicates: the same ranks in the same order as the pool's home. `deadline`
  // bounds each wait for the others.
  explicit MpiAgreement(MPI_Comm ranks, std::chrono::milliseconds deadline = std::chrono::milliseconds(60000))
      : deadline_(deadline) {
    MPI_Comm_dup(ranks, &ranks_);
    MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(ranks_, &rank_);
    MPI_Comm_size(ranks_, &count_);
  }
  // COLLECTIVE, unless a round failed: then the ranks that are left would wait here for the others.
  ~MpiAgreement() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (status_.ok() && finalized == 0) MPI_Comm_free(&ranks_);
  }
  MpiAgreement(const MpiAgreement&) = delete;
  MpiAgreement& operator=(const MpiAgreement&) = delete;

  operator Agreement() { return {AllGather, this}; }

  // Why the last round failed, with all missing ranks. The pool's own error names only the first of them.
  const Status& status() const { return status_; }

 private:
  using Clock = std::chrono::steady_clock;

  // What MPI reads and writes in one round. It may not move while MPI uses it.
  struct Round {
    std::vector<char> sent;
    std::vector<char> received;
    std::vector<MPI_Request> requests;  // [0, count) receives by rank, then sends; this rank's own are null
    std::vector<int> finished;
    std::vector<MPI_Status> statuses;
  };

  // The function for commpool_all_gather.
  static int AllGather(const void* sent, void* received, std::size_t bytes, void* context) {
    auto* const self = static_cast<MpiAgreement*>(context);
    return self->Gather(static_cast<const char*>(sent), static_cast<char*>(received), bytes);
  }

  int Gather(const char* sent, char* received, std::size_t bytes) {
    if (status_.ok()) status_ = CheckThread();
    if (status_.ok() && bytes > INT_MAX) status_ = Failure("a message of 2 GiB or more");
    if (!status_.ok()) return kFailed;
    auto round = std::make_unique<Round>();
    const int result = Begin(*round, sent, bytes) ? Finish(*round, static_cast<int>(bytes)) : kFailed;
    if (result == 0) {
      if (bytes > 0) std::memcpy(received, round->received.data(), round->received.size());
    } else {
      Leave(std::move(round));
    }
    return result;
  }

  Status CheckThread() const {
    int level = MPI_THREAD_SINGLE;
    int main = 0;
    MPI_Query_thread(&level);
    MPI_Is_thread_main(&main);
    if (level >= MPI_THREAD_SERIALIZED || main != 0) return Status();
    return Failure(
        "MPI was initialised for its main thread alone, and this is another: ask MPI_Init_thread for "
        "MPI_THREAD_SERIALIZED, or for MULTIPLE where several threads call MPI at once");
  }

  bool Begin(Round& round, const char* sent, std::size_t bytes) {
    const auto count = static_cast<std::size_t>(count_);
    const int length = static_cast<int>(bytes);
    round.sent.assign(sent, sent + bytes);
    round.received.resize(count * bytes);
    round.requests.assign(2 * count, MPI_REQUEST_NULL);
    round.finished.resize(2 * count);
    round.statuses.resize(2 * count);
    if (bytes > 0) std::memcpy(Place(round, rank_, bytes), sent, bytes);
    for (const int turn : {kReceives, kSends}) {
      for (int step = 1; step < count_; ++step) {
        // Every rank begins with its neighbour, so that not all send to one at once.
        const int peer = (rank_ + step) % count_;
        MPI_Request* const request = &round.requests[static_cast<std::size_t>(turn * count_ + peer)];
        const int error = turn == kReceives
                              ? MPI_Irecv(Place(round, peer, bytes), length, MPI_BYTE, peer, 0, ranks_, request)
                              : MPI_Isend(round.sent.data(), length, MPI_BYTE, peer, 0, ranks_, request);
        if (error != MPI_SUCCESS) {
          status_ = Failure("rank " + std::to_string(peer) + ": " + Text(error));
          return false;
        }
      }
    }
    return true;
  }

  // Polls until everything has arrived. Returns 0, or the value that tells the library which rank is missing.
  int Finish(Round& round, int bytes) {
    const Clock::time_point begin = Clock::now();
    while (true) {
      int finished = 0;
      const int error = MPI_Testsome(static_cast<int>(round.requests.size()), round.requests.data(), &finished,
                                     round.finished.data(), round.statuses.data());
      if (finished == MPI_UNDEFINED) return 0;
      if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS) {
        status_ = Failure(Text(error));
        return kFailed;
      }
      for (int index = 0; index < finished; ++index) {
        if (const int result = Check(round, index, error, bytes); result != 0) return result;
      }
      const auto waited = Clock::now() - begin;
      if (waited >= deadline_) return Missing(round);
      if (finished > 0) continue;
      // Ranks may share a core, so let them run; a late rank is not worth a busy wait.
      if (waited < kPatience) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kPause);
      }
    }
  }

  // Checks one operation that has ended: it may have failed, or have fewer bytes than it should.
  int Check(const Round& round, int index, int error, int bytes) {
    const MPI_Status& ended = round.statuses[static_cast<std::size_t>(index)];
    const int place = round.finished[static_cast<std::size_t>(index)];
    const int peer = place % count_;
    std::string why;
    if (error == MPI_ERR_IN_STATUS && ended.MPI_ERROR != MPI_SUCCESS) {
      why = Text(ended.MPI_ERROR);
    } else if (place < count_) {
      int came = 0;
      MPI_Get_count(&ended, MPI_BYTE, &came);
      if (came != bytes) why = std::to_string(came) + " bytes came, and " + std::to_string(bytes) + " were expected";
    }
    if (why.empty()) return 0;
    status_ = Failure("rank " + std::to_string(peer) + ": " + why);
    return NamedFailure(peer);
  }

  int Missing(const Round& round) {
    std::string names;
    int first = -1;
    int missing = 0;
    for (int peer = 0; peer < count_; ++peer) {
      const bool here = round.requests[static_cast<std::size_t>(peer)] == MPI_REQUEST_NULL &&
                        round.requests[static_cast<std::size_t>(count_ + peer)] == MPI_REQUEST_NULL;
      if (here) continue;
      if (first < 0) first = peer;
      if (++missing <= kNamed) names += (missing == 1 ? "" : ", ") + std::to_string(peer);
    }
    if (missing > kNamed) names += " and " + std::to_string(missing - kNamed) + " others";
    status_ = Failure("missing after " + std::to_string(deadline_.count()) + " ms: rank " + names);
    return NamedFailure(first);
  }

  // MPI may still use the buffers of a round that failed (a send cannot be taken back): keep them until the process
  // ends.
  static void Leave(std::unique_ptr<Round> round) {
    for (std::size_t index = 0; index < round->requests.size(); ++index) {
      MPI_Request& request = round->requests[index];
      if (request == MPI_REQUEST_NULL) continue;
      if (index < round->requests.size() / 2) MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
    static_cast<void>(round.release());
  }

  static char* Place(Round& round, int rank, std::size_t bytes) {
    return round.received.data() + static_cast<std::size_t>(rank) * bytes;
  }

  Status Failure(const std::string& why) const {
    return Status(StatusCode::kRemoteFailure,
                  "agreement over MPI on rank " + std::to_string(rank_) + " of " + std::to_string(count_) + ": " + why);
  }

  static std::string Text(int error) {
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(error, text, &length);
    return text;
  }

  // The library knows these values: reference.md names them.
  static constexpr int kFailed = -1;
  static constexpr int NamedFailure(int rank) { return -2 - rank; }

  static constexpr int kReceives = 0;
  static constexpr int kSends = 1;
  static constexpr int kNamed = 8;
  static constexpr std::chrono::milliseconds kPatience{2};
  static constexpr std::chrono::microseconds kPause{50};

  const std::chrono::milliseconds deadline_;
  MPI_Comm ranks_ = MPI_COMM_NULL;
  int rank_ = 0;
  int count_ = 0;
  Status status_;
};

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_MPI_H_
