#include "tests/nvtx/listener.h"

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtMem.h>

#include <cstdlib>
#include <cstring>

using commpool::internal::testing::Heard;

namespace {

Heard& Told() {
  static Heard* const heard = new Heard;
  return *heard;
}

// Everything that the tool is told goes through one of these.
struct Hearing {
  explicit Hearing(nvtxDomainHandle_t domain) : lock(heard.mutex) {
    if (domain != nullptr && !heard.domains.contains(Pool(domain))) heard.wrong.push_back("a domain that is none");
  }
  static const std::string* Pool(nvtxDomainHandle_t domain) { return reinterpret_cast<const std::string*>(domain); }
  void Expect(bool right, const std::string& what) {
    if (!right) heard.wrong.push_back(what);
  }

  Heard& heard = Told();
  std::lock_guard<std::mutex> lock;
};

// COMMPOOL_TEST_LISTENER.
bool Takes(const char* what) {
  const char* const takes = std::getenv("COMMPOOL_TEST_LISTENER");
  return takes == nullptr || std::strcmp(takes, "all") == 0 || std::strcmp(takes, what) == 0;
}

uint64_t Number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

nvtxDomainHandle_t DomainCreate(const char* name) {
  Heard& heard = Told();
  std::lock_guard<std::mutex> lock(heard.mutex);
  auto* const domain = new std::string(name);
  heard.domains.insert(domain);
  return reinterpret_cast<nvtxDomainHandle_t>(domain);
}

void DomainDestroy(nvtxDomainHandle_t domain) {
  Hearing hearing(domain);
  hearing.heard.domains.erase(Hearing::Pool(domain));
  delete Hearing::Pool(domain);
}

int RangePush(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  Hearing hearing(domain);
  hearing.heard.nested[std::this_thread::get_id()].push_back(*Hearing::Pool(domain) + ": " + range->message.ascii);
  hearing.heard.lines.push_back(std::string("push ") + range->message.ascii);
  return 0;
}

int RangePop(nvtxDomainHandle_t domain) {
  Hearing hearing(domain);
  std::vector<std::string>& nested = hearing.heard.nested[std::this_thread::get_id()];
  hearing.Expect(!nested.empty() && nested.back().starts_with(*Hearing::Pool(domain) + ": "), "no range to pop");
  if (nested.empty()) return 0;
  hearing.heard.lines.push_back("pop " + nested.back().substr(Hearing::Pool(domain)->size() + 2));
  nested.pop_back();
  return 0;
}

nvtxRangeId_t RangeStart(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  Hearing hearing(domain);
  hearing.heard.open[++hearing.heard.numbers] = range->message.ascii;
  hearing.heard.lines.push_back(std::string("start ") + range->message.ascii);
  return hearing.heard.numbers;
}

void RangeEnd(nvtxDomainHandle_t domain, nvtxRangeId_t number) {
  Hearing hearing(domain);
  hearing.Expect(hearing.heard.open.contains(number), "a range ends that is none");
  hearing.heard.lines.push_back("end " + hearing.heard.open[number]);
  hearing.heard.open.erase(number);
}

nvtxMemHeapHandle_t HeapRegister(nvtxDomainHandle_t domain, const nvtxMemHeapDesc_t* told) {
  Hearing hearing(domain);
  const auto* const range = static_cast<const nvtxMemVirtualRangeDesc_t*>(told->typeSpecificDesc);
  hearing.Expect(told->extCompatID == NVTX_EXT_COMPATID_MEM && told->structSize == sizeof(*told) &&
                     told->usage == NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR &&
                     told->type == NVTX_MEM_TYPE_VIRTUAL_ADDRESS && told->typeSpecificDescSize == sizeof(*range),
                 "a heap is told wrongly");
  if (hearing.heard.refused_heaps > 0) {
    --hearing.heard.refused_heaps;
    return nullptr;
  }
  auto* const heap = new Heard::Heap{domain == nullptr ? "" : *Hearing::Pool(domain), Number(range->ptr), range->size};
  hearing.Expect(hearing.heard.heaps.emplace(heap->address, heap).second, "a heap is registered twice");
  return reinterpret_cast<nvtxMemHeapHandle_t>(heap);
}

void HeapUnregister(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t handle) {
  Hearing hearing(domain);
  const auto* const heap = reinterpret_cast<const Heard::Heap*>(handle);
  for (const auto& [address, region] : hearing.heard.regions) {
    hearing.Expect(region.heap != heap, "a heap ends before its regions");
  }
  hearing.Expect(hearing.heard.heaps.erase(heap->address) == 1, "a heap ends that is none");
  delete heap;
}

void RegionsRegister(nvtxDomainHandle_t domain, const nvtxMemRegionsRegisterBatch_t* told) {
  Hearing hearing(domain);
  hearing.Expect(told->extCompatID == NVTX_EXT_COMPATID_MEM && told->structSize == sizeof(*told) &&
                     told->regionType == NVTX_MEM_TYPE_VIRTUAL_ADDRESS && told->regionCount == 1,
                 "a region is told wrongly");
  const auto* const heap = reinterpret_cast<const Heard::Heap*>(told->heap);
  const auto* const range = static_cast<const nvtxMemVirtualRangeDesc_t*>(told->regionDescElements);
  const uint64_t address = Number(range->ptr);
  hearing.Expect(address >= heap->address && address + range->size <= heap->address + heap->bytes,
                 "a region outside of its heap");
  for (const auto& [other, region] : hearing.heard.regions) {
    hearing.Expect(other + region.bytes <= address || address + range->size <= other, "regions overlap");
  }
  hearing.heard.regions[address] = {range->size, heap, ""};
}

void RegionsUnregister(nvtxDomainHandle_t domain, const nvtxMemRegionsUnregisterBatch_t* told) {
  Hearing hearing(domain);
  hearing.Expect(told->refType == NVTX_MEM_REGION_REF_TYPE_POINTER && told->refCount == 1, "told wrongly");
  hearing.Expect(hearing.heard.regions.erase(Number(told->refElements->pointer)) == 1, "a region ends that is none");
}

void RegionsName(nvtxDomainHandle_t domain, const nvtxMemRegionsNameBatch_t* told) {
  Hearing hearing(domain);
  const uint64_t address = Number(told->regionElements->region.pointer);
  const auto found = hearing.heard.regions.find(address);
  // compute-sanitizer takes no name for a heap either.
  hearing.Expect(found != hearing.heard.regions.end(), "a name for what is no region");
  if (found != hearing.heard.regions.end()) found->second.name = told->regionElements->name.ascii;
}

template <typename Function>
NvtxFunctionPointer Slot(Function* function) {
  return reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) Heard* CommpoolTestHeard() { return &Told(); }

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of) {
  if (!Takes("ranges")) return 1;
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable slots = nullptr;
  unsigned int count = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &slots, &count) == 0) return 0;
  *slots[NVTX_CBID_CORE2_DomainCreateA] = Slot(&DomainCreate);
  *slots[NVTX_CBID_CORE2_DomainDestroy] = Slot(&DomainDestroy);
  *slots[NVTX_CBID_CORE2_DomainRangePushEx] = Slot(&RangePush);
  *slots[NVTX_CBID_CORE2_DomainRangePop] = Slot(&RangePop);
  *slots[NVTX_CBID_CORE2_DomainRangeStartEx] = Slot(&RangeStart);
  *slots[NVTX_CBID_CORE2_DomainRangeEnd] = Slot(&RangeEnd);
  return 1;
}

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module) {
  if (!Takes("memory")) return 0;
  if (module->moduleId != NVTX_EXT_MODULEID_MEM) return 0;
  intptr_t* const slots = module->segments->functionSlots;
  slots[NVTX3EXT_CBID_nvtxMemHeapRegister] = reinterpret_cast<intptr_t>(&HeapRegister);
  slots[NVTX3EXT_CBID_nvtxMemHeapUnregister] = reinterpret_cast<intptr_t>(&HeapUnregister);
  slots[NVTX3EXT_CBID_nvtxMemRegionsRegister] = reinterpret_cast<intptr_t>(&RegionsRegister);
  slots[NVTX3EXT_CBID_nvtxMemRegionsUnregister] = reinterpret_cast<intptr_t>(&RegionsUnregister);
  slots[NVTX3EXT_CBID_nvtxMemRegionsName] = reinterpret_cast<intptr_t>(&RegionsName);
  return 1;
}
