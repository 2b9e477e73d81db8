#include "src/library/nvtx/domain.h"

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtMem.h>

#include <algorithm>
#include <array>
#include <tuple>

namespace commpool::internal::nvtx {

namespace {

nvtxDomainHandle_t Handle(void* handle) { return static_cast<nvtxDomainHandle_t>(handle); }

const void* Pointer(uint64_t address) { return reinterpret_cast<const void*>(address); }

// NVTX wants a zero at the end, and a range must not fail for want of host memory.
using Text = std::array<char, 128>;

nvtxEventAttributes_t Attributes(std::string_view text, Text& kept) {
  *std::copy_n(text.data(), std::min(text.size(), kept.size() - 1), kept.data()) = '\0';
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = kept.data();
  return attributes;
}

template <typename Batch>
Batch Begun() {
  Batch batch = {};
  batch.extCompatID = NVTX_EXT_COMPATID_MEM;
  batch.structSize = sizeof(Batch);
  return batch;
}

}  // namespace

// NVTX tells nobody whether a tool listens. A heap on trial would not do: compute-sanitizer refuses one that is no
// allocation. So this looks where NVTX keeps the tool's function.
bool ToolTakesHeaps() {
  NVTX_EXT_MEM_VERSIONED_ID(nvtxExtMemInitOnce)();
  const intptr_t taker = NVTX_EXT_MEM_VERSIONED_ID(nvtxExtMemSlots)[NVTX3EXT_CBID_nvtxMemHeapRegister + 1];
  return taker != NVTX_EXTENSION_FRESH && taker != NVTX_EXTENSION_DISABLED;
}

Domain::Domain(const std::string& pool, DomainNames& names)
    : names_(names), name_(names.Take(pool)), handle_(nvtxDomainCreateA(("commpool: " + *name_).c_str())) {}

Domain::~Domain() {
  if (heard()) nvtxDomainDestroy(Handle(handle_));
  names_.Return(name_);
}

void Domain::Push(std::string_view text) const {
  if (!heard()) return;
  Text kept;
  const nvtxEventAttributes_t attributes = Attributes(text, kept);
  nvtxDomainRangePushEx(Handle(handle_), &attributes);
}

void Domain::Pop() const {
  if (heard()) nvtxDomainRangePop(Handle(handle_));
}

uint64_t Domain::Start(std::string_view text) const {
  Text kept;
  const nvtxEventAttributes_t attributes = Attributes(text, kept);
  return nvtxDomainRangeStartEx(Handle(handle_), &attributes);
}

void Domain::End(uint64_t range) const { nvtxDomainRangeEnd(Handle(handle_), range); }

void* Domain::RegisterHeap(uint64_t address, uint64_t bytes) const {
  const nvtxMemVirtualRangeDesc_t range{bytes, Pointer(address)};
  auto heap = Begun<nvtxMemHeapDesc_t>();
  heap.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
  heap.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  heap.typeSpecificDescSize = sizeof(range);
  heap.typeSpecificDesc = &range;
  heap.messageType = NVTX_MESSAGE_TYPE_ASCII;
  heap.message.ascii = name_->c_str();
  return nvtxMemHeapRegister(Handle(handle_), &heap);
}

void Domain::UnregisterHeap(void* heap) const {
  nvtxMemHeapUnregister(Handle(handle_), static_cast<nvtxMemHeapHandle_t>(heap));
}

void Domain::RegisterRegion(void* heap, uint64_t address, uint64_t bytes) const {
  const nvtxMemVirtualRangeDesc_t range{bytes, Pointer(address)};
  auto batch = Begun<nvtxMemRegionsRegisterBatch_t>();
  batch.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  batch.heap = static_cast<nvtxMemHeapHandle_t>(heap);
  batch.regionCount = 1;
  batch.regionDescElementSize = sizeof(range);
  batch.regionDescElements = &range;
  nvtxMemRegionsRegister(Handle(handle_), &batch);
  // A tool's report says whose memory it is.
  nvtxMemRegionNameDesc_t name = {};
  name.regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER;
  name.nameType = NVTX_MESSAGE_TYPE_ASCII;
  name.region.pointer = Pointer(address);
  name.name.ascii = name_->c_str();
  auto names = Begun<nvtxMemRegionsNameBatch_t>();
  names.regionCount = 1;
  names.regionElementSize = sizeof(name);
  names.regionElements = &name;
  nvtxMemRegionsName(Handle(handle_), &names);
}

void Domain::UnregisterRegion(uint64_t address) const {
  nvtxMemRegionRef_t region = {};
  region.pointer = Pointer(address);
  auto batch = Begun<nvtxMemRegionsUnregisterBatch_t>();
  batch.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
  batch.refCount = 1;
  batch.refElementSize = sizeof(region);
  batch.refElements = &region;
  nvtxMemRegionsUnregister(Handle(handle_), &batch);
}

DomainNames::Name DomainNames::Take(const std::string& pool) {
  MutexLock lock(mutex_);
  auto [name, is_free] = names_.insert(pool);
  for (int number = 2; !is_free; ++number) {
    std::tie(name, is_free) = names_.insert(pool + " #" + std::to_string(number));
  }
  return name;
}

void DomainNames::Return(Name name) {
  MutexLock lock(mutex_);
  names_.erase(name);
}

void OpenRanges::Start(uint64_t handle, const std::shared_ptr<const Domain>& domain, std::string_view text) {
  if (!domain->heard()) return;
  const uint64_t range = domain->Start(text);
  any_.store(true, std::memory_order_relaxed);
  bool kept = false;
  {
    MutexLock lock(mutex_);
    kept = open_.emplace(handle, Open{domain, range}).second;
  }
  if (!kept) domain->End(range);
}

void OpenRanges::End(uint64_t handle) {
  if (!any()) return;
  std::map<uint64_t, Open>::node_type ended;
  {
    MutexLock lock(mutex_);
    ended = open_.extract(handle);
  }
  if (!ended.empty()) ended.mapped().domain->End(ended.mapped().range);
}

}  // namespace commpool::internal::nvtx
