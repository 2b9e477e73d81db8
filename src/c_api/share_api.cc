// The C ABI: how other processes reach a block's memory.
#include <memory>

#include "commpool/share.h"
#include "src/base/try.h"
#include "src/c_api/boundary.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

commpool_status commpool_share(const void* pointer, void** base, uint64_t* bytes, int* descriptor) {
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (base == nullptr || bytes == nullptr || descriptor == nullptr) return NullOutput();
    std::shared_ptr<BlockOwner> owner = COMMPOOL_TRY(runtime.addresses().OwnerOf(AddressOf(pointer)));
    const commpool_block block = COMMPOOL_TRY(owner->FindBlock(AddressOf(pointer)));
    std::shared_ptr<Pool> pool = COMMPOOL_TRY(runtime.pools().Find(block.pool));
    const SegmentStore::Shared shared = COMMPOOL_TRY(pool->Share(AddressOf(pointer)));
    *base = reinterpret_cast<void*>(shared.address);
    *bytes = shared.bytes;
    *descriptor = shared.descriptor;
    return Status();
  });
}
