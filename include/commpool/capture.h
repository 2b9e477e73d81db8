// CaptureScope: while it lives, a stream's capture is served from a part of a pool that belongs to the graph.
//
//   cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
//   { CaptureScope capture(pool, stream); PoolScope scope(pool); model.step(stream); }
//   cuStreamEndCapture(stream, &graph);
//
// Reserve before: nothing grows in a capture. See commpool_capture_begin.
#ifndef COMMPOOL_CAPTURE_H_
#define COMMPOOL_CAPTURE_H_

#include "commpool/commpool.h"
#include "commpool/pool.h"
#include "commpool/status.h"

namespace commpool {
inline namespace v1 {

class [[nodiscard]] CaptureScope {
 public:
  // Throws commpool::Error where the capture cannot be announced.
  CaptureScope(const Pool& pool, Stream stream) {
    detail::FromC(commpool_capture_begin(pool.handle(), stream, &capture_)).value();
  }
  ~CaptureScope() { commpool_capture_end(capture_); }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  commpool_capture capture_ = 0;
};

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_CAPTURE_H_
