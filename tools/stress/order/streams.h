// The streams of a worker of a random program. One thread.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tools/stress/order/machine.h"
#include "tools/stress/order/program_thread.h"

namespace commpool::cli::stress_order {

struct OrderStream {
  enum class Kind { kDefault, kPerThread, kOwn };

  Kind kind = Kind::kOwn;
  int device = 0;
  CUstream handle = nullptr;
  int number = 0;
  int thread = -1;        // of a per-thread default stream: the thread's number; -1: any
  bool promised = false;  // the program releases it before it destroys it
  bool gone = false;      // destroyed, or its thread has ended
  bool blocking = false;  // of an own stream: the default stream waits for it
  bool captures = false;

  bool IsDefault() const { return kind != Kind::kOwn; }
  std::string Describe() const;
};
using StreamPointer = std::shared_ptr<OrderStream>;

// Work of a stream that has been submitted, and an event behind it.
struct Moment {
  StreamPointer stream = nullptr;  // null: nothing to wait for
  std::shared_ptr<internal::Event> event = nullptr;
};

class OrderStreams {
 public:
  OrderStreams(Machine& machine, std::mt19937_64& random, int devices);
  // Ends the threads and destroys the streams.
  ~OrderStreams();
  OrderStreams(const OrderStreams&) = delete;
  OrderStreams& operator=(const OrderStreams&) = delete;

  // A stream of one of those devices that does not capture.
  StreamPointer Any(const std::vector<int>& devices);
  // An own stream of the device.
  StreamPointer Own(int device);
  // Runs `call` on a thread from which the stream's handle means the stream, with its device current. Null: anywhere.
  void On(const OrderStream* stream, const std::function<void()>& call);
  // The same with that device current.
  void On(const OrderStream* stream, int device, const std::function<void()>& call);
  int AnyDevice() { return static_cast<int>(Random(static_cast<uint64_t>(devices_))); }

  // On the stream's thread, its device current.
  Moment Now(const StreamPointer& stream);
  void Await(const OrderStream& stream, const Moment& moment);

  // The same with another stream, or thread, in its place. `before` runs while the old one still lives.
  using BeforeEnd = std::function<void(const StreamPointer&)>;
  void ReplaceStream(const BeforeEnd& before);
  void ReplaceThread(const BeforeEnd& before);
  // Waits on the host for a stream, or for a device.
  void WaitOnHost();

 private:
  uint64_t Random(uint64_t below) { return random_() % below; }
  StreamPointer MakeOwn(int device);
  void AddThread();
  void Destroy(OrderStream& stream);

  Machine& machine_;
  std::mt19937_64& random_;
  const int devices_;
  std::vector<StreamPointer> streams_;
  std::vector<std::unique_ptr<ProgramThread>> threads_;
  int next_number_ = 0;
  int next_thread_ = 0;
};

}  // namespace commpool::cli::stress_order
