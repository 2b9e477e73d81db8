// An owner without blocks, for tables that ask an owner its name.
#pragma once

#include <string>
#include <utility>

#include "src/library/pool/shared/tables.h"

namespace commpool::internal {

class NobodysOwner final : public BlockOwner {
 public:
  explicit NobodysOwner(std::string name = "nobody") : name_(std::move(name)) {}

  int device() const override { return 0; }
  const std::string& name() const override { return name_; }
  bool symmetric() const override { return false; }
  Result<commpool_block> FindBlock(CUdeviceptr) const override {
    return Status(StatusCode::kNotFound, "it has no blocks");
  }
  Status Free(CUdeviceptr) override { return Status(); }
  Status RecordStream(CUdeviceptr, StreamKey) override { return Status(); }
  bool streams_outlive() const override { return false; }
  void TakeBack(const engine::ReturnedBlocks&) override {}

 private:
  const std::string name_;
};

}  // namespace commpool::internal
