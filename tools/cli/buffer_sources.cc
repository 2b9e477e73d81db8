#include "tools/cli/buffer_sources.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "tools/cli/median.h"

namespace commpool::cli {

namespace {

class PoolSource : public BufferSource {
 public:
  PoolSource(const RankDevice& device, Pool pool) : device_(device), pool_(std::move(pool)) {}

  Result<BufferPair> Take(uint64_t bytes) override {
    for (Buffer* buffer : {&sent_, &received_}) {
      Buffer made = COMMPOOL_TRY(pool_.allocate(bytes, device_.stream));
      *buffer = std::move(made);
    }
    return BufferPair{sent_.data(), received_.data()};
  }
  Status GiveBack() override {
    for (Buffer* buffer : {&sent_, &received_}) {
      COMMPOOL_TRY(buffer->free());
    }
    return pool_.reclaim().status();
  }
  Status Close() override { return pool_.close(); }
  commpool_pool pool() const override { return pool_.handle(); }

 private:
  const RankDevice& device_;
  Pool pool_;
  Buffer sent_;
  Buffer received_;
};

class HandSource : public BufferSource {
 public:
  HandSource(const RankDevice& device, BufferKind kind) : device_(device), nccl_(device.driver->nccl), kind_(kind) {}

  Result<BufferPair> Take(uint64_t bytes) override {
    std::array<void*, 2> made = {};
    for (void*& data : made) {
      data = nullptr;
      const uint64_t whole = internal::RoundUp(std::max<uint64_t>(bytes, 1), 2 * internal::kMiB);
      COMMPOOL_TRY(Check(nccl_.ncclMemAlloc(&data, whole), "ncclMemAlloc", whole));
      COMMPOOL_TRY(Register(data, whole));
    }
    return BufferPair{made[0], made[1]};
  }
  Status GiveBack() override {
    device_.driver->cuda.cuStreamSynchronize(device_.stream);
    Status first;
    for (const Held& held : std::exchange(held_, {})) {
      Status status;
      if (held.window != nullptr) {
        status = Check(nccl_.ncclCommWindowDeregister(device_.communicator, held.window), "deregistering", 0);
      }
      if (held.local != nullptr) {
        status = Check(nccl_.ncclCommDeregister(device_.communicator, held.local), "deregistering", 0);
      }
      if (status.ok()) status = Check(nccl_.ncclMemFree(held.data), "ncclMemFree", 0);
      if (first.ok()) first = status;
    }
    return first;
  }

 private:
  struct Held {
    void* data = nullptr;
    void* local = nullptr;
    ncclWindow_t window = nullptr;
  };

  Status Register(void* data, uint64_t bytes) {
    Held& held = held_.emplace_back(Held{.data = data});
    switch (kind_) {
      case BufferKind::kPlain:
        return Status();
      case BufferKind::kLocal:
        return Check(nccl_.ncclCommRegister(device_.communicator, data, bytes, &held.local), "ncclCommRegister", bytes);
      case BufferKind::kWindow:
        return Check(
            nccl_.ncclCommWindowRegister(device_.communicator, data, bytes, &held.window, NCCL_WIN_COLL_SYMMETRIC),
            "ncclCommWindowRegister", bytes);
    }
    return Status();
  }
  Status Check(ncclResult_t result, const char* call, uint64_t bytes) const {
    return internal::CheckNccl(*device_.driver, result, {.call = call, .device = device_.device, .bytes = bytes},
                               device_.communicator);
  }

  const RankDevice& device_;
  const internal::NcclLibrary& nccl_;
  const BufferKind kind_;
  std::vector<Held> held_;
};

}  // namespace

const char* Name(BufferKind kind) {
  switch (kind) {
    case BufferKind::kPlain:
      return "plain";
    case BufferKind::kLocal:
      return "local";
    case BufferKind::kWindow:
      return "window";
  }
  return "?";
}

Result<std::unique_ptr<BufferSource>> MakePoolSource(const RankDevice& device, BufferKind kind, uint64_t most_bytes) {
  const bool window = kind == BufferKind::kWindow;
  Pool pool = COMMPOOL_TRY(Pool::create(
      {.name = Name(kind), .device = device.device, .symmetric_across = window ? device.communicator : nullptr}));
  Status status = kind == BufferKind::kLocal ? pool.register_with(device.communicator) : Status();
  if (status.ok()) status = pool.reserve(2 * internal::RoundUp(most_bytes, internal::kMiB));
  if (status.ok() && kind == BufferKind::kLocal) status = pool.register_pending().status();
  if (!status.ok()) return status;
  return std::unique_ptr<BufferSource>(std::make_unique<PoolSource>(device, std::move(pool)));
}

std::unique_ptr<BufferSource> MakeHandSource(const RankDevice& device, BufferKind kind) {
  return std::make_unique<HandSource>(device, kind);
}

Result<BufferSources> MakePoolSources(const RankDevice& device, uint64_t most_bytes,
                                      std::vector<std::string>& without) {
  BufferSources sources;
  for (const BufferKind kind : kBufferKinds) {
    Result<std::unique_ptr<BufferSource>> source = MakePoolSource(device, kind, most_bytes);
    if (source.ok()) {
      sources[kind] = std::move(*source);
    } else if (source.status().code() == StatusCode::kNotSupported) {
      without.push_back(std::string(Name(kind)) + ": " + source.status().message());
    } else {
      return source.status();
    }
  }
  return sources;
}

Status CloseAll(BufferSources& sources) {
  for (auto& [kind, source] : sources) {
    COMMPOOL_TRY(source->Close());
  }
  return Status();
}

Result<std::vector<double>> TimeInTurn(const CollectiveTimer& timer, Collective collective, Place place, uint64_t bytes,
                                       const std::vector<BufferSource*>& sources, int rounds) {
  std::vector<BufferPair> pairs;
  for (BufferSource* const source : sources) {
    BufferPair pair = COMMPOOL_TRY(source->Take(bytes));
    pairs.push_back(pair);
  }
  std::vector<std::vector<double>> times(sources.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t index = 0; index < pairs.size(); ++index) {
      const double time = COMMPOOL_TRY(timer.Time(collective, place, bytes, pairs[index]));
      times[index].push_back(time);
    }
  }
  for (BufferSource* const source : sources) {
    COMMPOOL_TRY(source->GiveBack());
  }
  std::vector<double> medians;
  for (const std::vector<double>& of_source : times) medians.push_back(Median(of_source));
  return medians;
}

}  // namespace commpool::cli
