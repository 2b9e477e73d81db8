// Records of work that another process asks about: two events and a number for each record.
//
// A stream never waits for another process's event, because it would wait for ever once that process is killed; the
// other process asks instead. Of the two events one is recorded anew by each record, while the other stays as it is
// until its work is done. So whoever asks for one number gets a yes in the end, however many records follow.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "commpool/status.h"
#include "src/library/driver/handles.h"
#include "src/library/sharing/reading_board.h"

namespace commpool::internal {

// The pauses between looks at another process's work, which no call can wait for: short ones first.
class Pauses {
 public:
  void Pause();

 private:
  std::chrono::microseconds next_{20};
};

// The side that records. The device's context is current in every call; one thread at a time.
class SharedRecords {
 public:
  static Result<SharedRecords> Make(const Driver& driver);

  // What OpenedRecords::Open needs.
  const std::string& handles() const { return handles_; }
  // Records behind the work on the stream, and behind all earlier records: the stream waits for those. Returns the
  // number. REQUIRES: the stream does not capture.
  Result<uint64_t> Record(CUstream stream);
  // Tells the other process; call it after Record.
  void Publish(RecordNumbers& numbers) const;
  // Whether all records up to the number, which Record returned, are done.
  Result<bool> Passed(uint64_t number) const;

 private:
  std::array<Event, 2> events_;
  std::array<uint64_t, 2> numbers_ = {};
  size_t newest_ = 0;
  std::string handles_;
};

// The side that asks. It opens the events once it needs them: that takes long, and many imports never do. Any thread.
class OpenedRecords {
 public:
  static constexpr size_t kHandleBytes = 2 * sizeof(CUipcEventHandle);

  // `handles`: of the other process. kInvalidArgument for another length. REQUIRES: nobody has asked yet.
  Status Take(const std::string& handles);

  // kRemoteFailure where the driver opens them no more: the other process has ended. A context must be current.
  Status Open(const Driver& driver);
  // Whether all records up to the number are done, as far as the other process has told; Open's errors.
  Result<bool> Passed(const Driver& driver, uint64_t number, const RecordNumbers& numbers);

 private:
  std::array<CUipcEventHandle, 2> handles_ = {};
  std::mutex mutex_;                            // not our Mutex: nothing is called under it
  std::optional<std::array<Event, 2>> events_;  // set under the mutex; once there it stays as it is
};

}  // namespace commpool::internal
