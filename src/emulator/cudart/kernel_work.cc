#include "src/emulator/cudart/kernel_work.h"

namespace commpool::internal::emulated_cudart {

double KernelDuration(size_t bytes) {
  constexpr double kBytesPerMicrosecond = 2.0e6;
  return 2.0 + static_cast<double>(bytes) / kBytesPerMicrosecond;
}

commpoolEmulatorRange RangeOf(const void* tensor, size_t bytes) {
  return {reinterpret_cast<CUdeviceptr>(tensor), bytes};
}

std::optional<std::string_view> TakeUntil(std::string_view* text, std::string_view end) {
  const size_t found = text->find(end);
  if (found == std::string_view::npos) return std::nullopt;
  const std::string_view taken = text->substr(0, found);
  text->remove_prefix(found + end.size());
  return taken;
}

bool Skip(std::string_view* text, std::string_view begin) {
  if (!text->starts_with(begin)) return false;
  text->remove_prefix(begin.size());
  return true;
}

}  // namespace commpool::internal::emulated_cudart
