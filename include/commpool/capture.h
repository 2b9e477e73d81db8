// CaptureScope: while it lives, a stream's capture is served from a part of a pool that belongs to the graph.
//
//   cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
//   { CaptureScope capture(pool, stream); PoolScope scope(pool); model.step(stream); }
//   cuStreamEndCapture(stream, &graph);
//
// A program without exceptions begins it with CaptureScope::begin. Registered and symmetric pools serve what was
// reserved before, others grow. See commpool_capture_begin.
#ifndef COMMPOOL_CAPTURE_H_
#define COMMPOOL_CAPTURE_H_

#include <utility>

#include "commpool/commpool.h"
#include "commpool/pool.h"
#include "commpool/status.h"

namespace commpool {
inline namespace v1 {

class [[nodiscard]] CaptureScope {
 public:
  static Result<CaptureScope> begin(const Pool& pool, Stream stream) {
    commpool_capture capture = 0;
    Status status = detail::FromC(commpool_capture_begin(pool.handle(), stream, &capture));
    if (!status.ok()) return status;
    return CaptureScope(capture);
  }
  // The same as begin(); throws commpool::Error where the capture cannot be announced.
  CaptureScope(const Pool& pool, Stream stream) : CaptureScope(begin(pool, stream).value()) {}

  CaptureScope(CaptureScope&& other) noexcept : capture_(std::exchange(other.capture_, 0)) {}
  CaptureScope& operator=(CaptureScope&&) = delete;
  ~CaptureScope() {
    if (capture_ != 0) commpool_capture_end(capture_);
  }

 private:
  explicit CaptureScope(commpool_capture capture) : capture_(capture) {}

  commpool_capture capture_ = 0;
};

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_CAPTURE_H_
