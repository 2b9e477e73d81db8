// A process with pools and imports of its own, which does what the test asks through the C ABI and may be killed.
//
// It is the test program itself, started anew: `main` of sharing_process.cc tells the two apart. Each request is
// answered, so no test sleeps. The test's own process may do the same work directly (SharingWork).
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <future>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/share.h"
#include "src/library/base/file_descriptor.h"

namespace commpool::internal::testing {

enum class Do {
  kMakePool,    // of the backing `number`; keeps it as its pool
  kAllocate,    // `number` bytes of its pool -> pointer
  kFree,        // `pointer`
  kSharePool,   // commpool_imports `number` -> text
  kShareBlock,  // `pointer`, commpool_writes `number` -> text
  kBeginUpdate,
  kEndUpdate,
  kOpen,          // the ticket `text`, commpool_addresses `number`, deadline `pointer` -> number
  kOpenOnDevice,  // the ticket `text`, for the device `number` -> number
  kBlock,
  kAddress,
  kBeginRead,
  kEndRead,
  kRelease,  // behind its stream; with `number`, behind the default stream
  kClose,
  kFill,        // the block at `pointer`, 4096 bytes, with `number`, on its stream
  kFirstByte,   // at `pointer` -> number, after all work of its stream
  kRegister,    // 4096 bytes at `pointer` with a communicator of its own, and ends that again
  kHoldStream,  // submits work to its stream that runs until kFreeStream
  kFreeStream,
  kTrim,  // -> number: released bytes
  kSleep,
  kWake,
  kEndPool,  // commpool_pool_close
  kDestroyPool,
  kDescriptors,      // -> number: of its open descriptors
  kTakeDescriptors,  // all but `number`
  kGiveDescriptors,  // what it took
  kCalls,            // -> number: of calls of the driver function `text`
  kForkHolder,       // -> number: a child that holds what it inherited until it is killed
  kPendingBlocks,    // -> number: of its pool; pointer: the bytes that count as allocated
  kImport,           // keeps the import `number` as its import
};

inline constexpr uint64_t kOnDevice1 = 100;  // added to kMakePool's number

struct Order {
  Do what;
  uint64_t pointer = 0;
  uint64_t number = 0;
  std::string text = {};
};

struct Outcome {
  commpool_status status = COMMPOOL_OK;
  uint64_t pointer = 0;
  uint64_t number = 0;
  std::string text;  // a ticket, or the sentence of the failure
};

// One pool, one import and one stream at a time.
class SharingWork {
 public:
  SharingWork();
  ~SharingWork();  // closes what it imported
  SharingWork(const SharingWork&) = delete;
  SharingWork& operator=(const SharingWork&) = delete;

  Outcome Carry(const Order& order);

 private:
  Outcome WithPool(const Order& order);
  Outcome WithImport(const Order& order);
  Outcome WithStream(const Order& order);
  Outcome WithDescriptors(const Order& order);

  commpool_pool pool_ = 0;
  commpool_import import_ = 0;
  std::vector<commpool_import> opened_;
  CUstream stream_ = nullptr;
  std::promise<void> held_;
  std::vector<FileDescriptor> taken_;
};

class SharingProcess {
 public:
  // `emulator`: its COMMPOOL_EMULATOR, where that is another than the test's.
  explicit SharingProcess(const char* emulator = nullptr);
  ~SharingProcess() { End(); }
  SharingProcess(const SharingProcess&) = delete;
  SharingProcess& operator=(const SharingProcess&) = delete;

  Outcome Ask(const Order& order);
  // Does not wait for the answer, which Answer() takes.
  void Begin(const Order& order);
  Outcome Answer();
  bool HasAnswered() const;
  pid_t process() const { return process_; }

  // Ends it in order, or by SIGKILL; both return once it is gone.
  void End();
  void Kill();
  // Stops it where it is, until the next signal or its end.
  void Stop() const;
  void Continue() const;

 private:
  FileDescriptor socket_;
  pid_t process_ = -1;
};

// The folder of the sockets of all processes of the test.
std::string SocketFolder();
std::vector<std::string> Sockets();

inline Outcome Good(Outcome outcome, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  EXPECT_EQ(outcome.status, COMMPOOL_OK) << file << ":" << line << ": " << outcome.text;
  return outcome;
}

// Asks for these in turn; each must succeed.
inline void Carry(SharingProcess& process, std::initializer_list<Order> orders, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  for (const Order& order : orders) {
    SCOPED_TRACE("order " + std::to_string(1 + (&order - orders.begin())));
    Good(process.Ask(order), file, line);
  }
}

inline void ExpectRefusal(const Outcome& outcome, commpool_status status, const std::string& part,
                          const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  EXPECT_EQ(outcome.status, status) << file << ":" << line << ": " << outcome.text;
  EXPECT_NE(outcome.text.find(part), std::string::npos) << file << ":" << line << ": " << outcome.text;
}

}  // namespace commpool::internal::testing
