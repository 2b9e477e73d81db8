// An event that several processes record and wait for.
//
// It is a small file. Each record has a number, and its process locks the byte of that number until the record is done.
// So others wait for a lock, and nobody waits for a process that was killed.
#pragma once

#include <cstdint>
#include <memory>

#include "src/emulator/cuda/shared_file.h"
#include "src/library/base/file_descriptor.h"

namespace commpool::internal::emulator {

// One end of such an event. An event of the program holds it, and so does each wait for a record of another process.
class SharedEvent : public std::enable_shared_from_this<SharedEvent> {
 public:
  // Makes an event of a device, by the machine's number; null if the system has no descriptor or memory for it.
  static std::shared_ptr<SharedEvent> Make(int device_number);
  // Opens another process's; null if no emulator made the file.
  static std::shared_ptr<SharedEvent> Open(FileDescriptor file);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  int device_number() const;
  IpcPlace place() const { return IpcPlace::Of(file_.get()); }

  // Begins a record. It is done when the result is gone.
  std::shared_ptr<void> Record(uint64_t* number);
  // The number of the last record; 0 before the first.
  uint64_t last() const;
  // Both are about records of other ends.
  bool IsPending(uint64_t number) const { return IsLockedElsewhere(file_.get(), number, Lock::kShared); }
  void Await(uint64_t number) const { AwaitUnlocked(file_.get(), number); }

 private:
  struct State;
  SharedEvent(FileDescriptor file, State* state) : file_(std::move(file)), state_(state) {}
  static std::shared_ptr<SharedEvent> Map(FileDescriptor file);

  FileDescriptor file_;
  State* state_;  // in the file
};

}  // namespace commpool::internal::emulator
