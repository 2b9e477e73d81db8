// Two neighbouring blocks of a pool, and a kernel that writes from the start of the first one: for hardware_overrun.py,
// which runs it under compute-sanitizer and judges what that says.
//
// usage: overrun BACKING MODE BYTES WRITTEN [keep]
//   BACKING   vmm or cuda        MODE   fixed or expandable
//   BYTES     of a block         WRITTEN   bytes that the kernel writes, one after the other
//   keep      the context ends before the blocks are freed
#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include "commpool/pool.h"
#include "commpool/runtime.h"

namespace {

constexpr char kPtx[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry write_bytes(.param .u64 first, .param .u64 count)
{
  .reg .pred %more;
  .reg .b16 %value;
  .reg .b64 %at, %left;
  ld.param.u64 %at, [first];
  ld.param.u64 %left, [count];
  mov.u16 %value, 7;
again:
  st.global.u8 [%at], %value;
  add.u64 %at, %at, 1;
  sub.u64 %left, %left, 1;
  setp.ne.u64 %more, %left, 0;
  @%more bra again;
  ret;
}
)";

// The driver that the library has opened; it never calls most of these itself.
template <typename Function>
Function* Find(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void* const symbol = library == nullptr ? nullptr : dlsym(library, name);
  if (symbol == nullptr) throw std::runtime_error(std::string(name) + " is not in the driver that the library opened");
  return reinterpret_cast<Function*>(symbol);
}

#define CALL(function, ...) Check(Find<decltype(function)>(#function)(__VA_ARGS__), #function)

void Check(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) throw std::runtime_error(std::string(call) + ": result " + std::to_string(result));
}

commpool::PoolOptions Options(const std::string& backing, const std::string& mode) {
  commpool::PoolOptions options;
  options.backing = backing == "cuda" ? commpool::Backing::kCuda : commpool::Backing::kVmm;
  options.mode = mode == "expandable" ? commpool::Mode::kExpandable : commpool::Mode::kFixed;
  options.name = "gradients";
  return options;
}

void Run(const std::string& backing, const std::string& mode, uint64_t bytes, uint64_t written, bool keep) {
  commpool::Pool pool = commpool::Pool::create(Options(backing, mode)).value();
  CUcontext context = nullptr;
  CALL(cuDevicePrimaryCtxRetain, &context, 0);
  CALL(cuCtxSetCurrent, context);
  commpool::Buffer first = pool.allocate(bytes, nullptr).value();
  commpool::Buffer second = pool.allocate(bytes, nullptr).value();
  std::printf("%s: block %p of %llu bytes, and %p\n", commpool::driver_description().c_str(), first.data(),
              static_cast<unsigned long long>(bytes), second.data());
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CALL(cuModuleLoadData, &module, kPtx);
  CALL(cuModuleGetFunction, &function, module, "write_bytes");
  CUdeviceptr at = reinterpret_cast<CUdeviceptr>(first.data());
  void* parameters[] = {&at, &written};
  CALL(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
  const CUresult result = Find<decltype(cuCtxSynchronize)>("cuCtxSynchronize")();
  std::printf("the kernel wrote %llu bytes: result %d\n", static_cast<unsigned long long>(written), result);
  std::fflush(stdout);
  if (!keep) return;
  CALL(cuDevicePrimaryCtxReset, 0);  // the tool lists what is left of a context when it ends
  std::exit(0);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 5) throw std::runtime_error("usage: overrun BACKING MODE BYTES WRITTEN [keep]");
  Run(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10), std::strtoull(argv[4], nullptr, 10), argc > 5);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "overrun: %s\n", error.what());
  return 2;
}
