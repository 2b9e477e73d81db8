#include "tools/cli/torch_library.h"

#include "src/library/base/try.h"
#include "src/library/driver/shared_library.h"

namespace commpool::cli {

Result<TorchLibrary> TorchLibrary::Open(const std::string& file) {
  internal::SharedLibrary library = COMMPOOL_TRY(internal::SharedLibrary::Open(file));
  void (*initialise)() = nullptr;
  TorchLibrary torch;
  bool complete = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.Symbol(name));
    complete = complete && function != nullptr;
  };
  find(initialise, "bench_torch_initialise");
  find(torch.allocate, "bench_torch_allocate");
  find(torch.free, "bench_torch_free");
  find(torch.record_stream, "bench_torch_record_stream");
  find(torch.empty_cache, "bench_torch_empty_cache");
  if (!complete) {
    return Status(StatusCode::kNotFound, file + " is not what tools/bench/build_torch_allocator.sh builds");
  }
  initialise();
  return torch;
}

}  // namespace commpool::cli
