// A segment of memory whose access is not ours to grant address by address: cudaMalloc's, ncclMemAlloc's, a user's.
#ifndef COMMPOOL_SRC_BACKING_PLAIN_SEGMENT_H_
#define COMMPOOL_SRC_BACKING_PLAIN_SEGMENT_H_

#include <functional>
#include <memory>
#include <utility>

#include "src/backing/backing.h"
#include "src/base/log.h"
#include "src/driver/handles.h"

namespace commpool {

class PlainSegment : public Segment {
 public:
  struct Functions {
    std::function<Status(CUdeviceptr address, uint64_t bytes)> free;
    std::function<Status(int peer)> grant;
    std::function<Status(int peer)> revoke;
  };

  // `context` is made current for every function, and stays retained while the segment lives.
  PlainSegment(const Driver& driver, std::shared_ptr<const PrimaryContext> context, CUdeviceptr address, uint64_t bytes,
               Functions functions)
      : driver_(driver),
        context_(std::move(context)),
        address_(address),
        bytes_(bytes),
        functions_(std::move(functions)) {}
  ~PlainSegment() override {
    Status status = Free();
    if (!status.ok()) Log(LogLevel::kWarning, status.message());
  }

  CUdeviceptr address() const override { return address_; }
  uint64_t bytes() const override { return bytes_; }

  Status Grant(int peer) override {
    ContextGuard guard(driver_, *context_);
    return functions_.grant(peer);
  }
  Status Revoke(int peer) override {
    ContextGuard guard(driver_, *context_);
    return functions_.revoke(peer);
  }
  Status Free() override {
    if (!owned_) return Status();
    owned_ = false;
    ContextGuard guard(driver_, *context_);
    return functions_.free(address_, bytes_);
  }
  void Abandon() override { owned_ = false; }

 private:
  const Driver& driver_;
  const std::shared_ptr<const PrimaryContext> context_;
  const CUdeviceptr address_;
  const uint64_t bytes_;
  const Functions functions_;
  bool owned_ = true;
};

}  // namespace commpool

#endif  // COMMPOOL_SRC_BACKING_PLAIN_SEGMENT_H_
