// ToolSpans: a pool's spans as ranges of its NVTX domain, beside what a recording shows of them.
#ifndef COMMPOOL_SRC_LIBRARY_POOL_BASIS_TOOL_SPANS_H_
#define COMMPOOL_SRC_LIBRARY_POOL_BASIS_TOOL_SPANS_H_

#include <memory>
#include <string>
#include <string_view>

#include "src/library/nvtx/domain.h"
#include "src/library/nvtx/open_ranges.h"
#include "src/library/recording/pool_recorder.h"

namespace commpool::internal {

// PoolBasis has one. Any thread. It shares the domain, which the tool knows by the pool's name, with ranges that end
// after the pool. PoolRecorder calls it, on the thread whose span begins or ends.
class ToolSpans final : public recording::SpanListener {
 public:
  ToolSpans(const std::string& pool, nvtx::DomainNames& names, nvtx::OpenRanges& open)
      : domain_(std::make_shared<nvtx::Domain>(pool, names)), open_(open) {}

  const std::shared_ptr<const nvtx::Domain>& domain() const { return domain_; }
  // Null where no tool listens.
  const recording::SpanListener* listener() const { return domain_->heard() ? this : nullptr; }

  void Began(std::string_view text) const override { domain_->Push(text); }
  void Ended() const override { domain_->Pop(); }
  // RuntimeParts::EndHandle ends it, perhaps on another thread.
  void BeganHandle(uint64_t span, std::string_view text) const override { open_.Start(span, domain_, text); }

 private:
  const std::shared_ptr<const nvtx::Domain> domain_;
  nvtx::OpenRanges& open_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_POOL_BASIS_TOOL_SPANS_H_
