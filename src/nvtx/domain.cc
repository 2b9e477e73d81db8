#include "src/nvtx/domain.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>

namespace commpool::internal::nvtx {

namespace {

nvtxDomainHandle_t Handle(void* handle) { return static_cast<nvtxDomainHandle_t>(handle); }

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

}  // namespace

Domain::Domain(const std::string& pool) : handle_(nvtxDomainCreateA(("commpool: " + pool).c_str())) {}

Domain::~Domain() {
  if (heard()) nvtxDomainDestroy(Handle(handle_));
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
  if (!heard()) return 0;
  Text kept;
  const nvtxEventAttributes_t attributes = Attributes(text, kept);
  return nvtxDomainRangeStartEx(Handle(handle_), &attributes);
}

void Domain::End(uint64_t range) const {
  if (heard()) nvtxDomainRangeEnd(Handle(handle_), range);
}

}  // namespace commpool::internal::nvtx
