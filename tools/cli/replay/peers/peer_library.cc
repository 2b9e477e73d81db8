#include "tools/cli/replay/peers/peer_library.h"

#include <type_traits>

#include "src/base/try.h"
#include "src/driver/shared_library.h"

namespace commpool::cli {

Result<RmmLibrary> RmmLibrary::Open(const std::string& file) {
  internal::SharedLibrary library = COMMPOOL_TRY(internal::SharedLibrary::Open(file));
  RmmLibrary rmm;
  bool complete = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.Symbol(name));
    complete = complete && function != nullptr;
  };
  find(rmm.initialise, "bench_rmm_initialise");
  find(rmm.allocate, "bench_rmm_allocate");
  find(rmm.free, "bench_rmm_free");
  find(rmm.finish, "bench_rmm_finish");
  find(rmm.upstream, "bench_rmm_upstream");
  if (complete) return rmm;
  return Status(StatusCode::kNotFound, file + " is not what tools/bench/build_rmm_allocator.sh builds");
}

}  // namespace commpool::cli
