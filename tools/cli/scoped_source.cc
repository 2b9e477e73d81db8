#include "tools/cli/scoped_source.h"

#include <utility>

#include "commpool/scope.h"
#include "src/base/try.h"

namespace commpool::cli {

namespace {

class ScopedSource : public BufferSource {
 public:
  ScopedSource(const RankDevice& device, const BufferSources& sources, std::vector<AdviceRange> ranges)
      : device_(device), sources_(sources), ranges_(std::move(ranges)) {}

  Result<BufferPair> Take(uint64_t bytes) override { return TakeInScopes(bytes, 0); }
  Status GiveBack() override {
    COMMPOOL_TRY(sent_.free());
    return received_.free();
  }

 private:
  // Opens the scopes one inside the other, as a program does.
  Result<BufferPair> TakeInScopes(uint64_t bytes, size_t range) {
    if (range == ranges_.size()) return Allocate(bytes);
    const SizeRange sizes{ranges_[range].min_bytes, ranges_[range].max_bytes};
    const PoolScope scope(sources_.at(ranges_[range].kind)->pool(), {.sizes = sizes});
    return TakeInScopes(bytes, range + 1);
  }
  Result<BufferPair> Allocate(uint64_t bytes) {
    for (Buffer* buffer : {&sent_, &received_}) {
      Buffer made = COMMPOOL_TRY(allocate(bytes, device_.stream));
      *buffer = std::move(made);
    }
    return BufferPair{sent_.data(), received_.data()};
  }

  const RankDevice& device_;
  const BufferSources& sources_;
  const std::vector<AdviceRange> ranges_;
  Buffer sent_;
  Buffer received_;
};

}  // namespace

std::unique_ptr<BufferSource> MakeScopedSource(const RankDevice& device, const BufferSources& sources,
                                               std::vector<AdviceRange> ranges) {
  return std::make_unique<ScopedSource>(device, sources, std::move(ranges));
}

}  // namespace commpool::cli
