#include "tools/cli/compute_load.h"

#include <cstdint>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/driver/shared_library.h"

namespace commpool::cli {

namespace {

// Four independent products in each turn hide the latency of one. Sums stay far below infinity. Nothing is stored: the
// condition is never true, but the compiler cannot know that.
constexpr char kPtx[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry commpool_compute_load(.param .u32 turns, .param .u64 sink)
.maxntid 256, 1, 1
{
  .reg .pred %more, %never;
  .reg .b32 %left, %one, %small;
  .reg .f32 %f<16>;
  .reg .b64 %sink;
  ld.param.u32 %left, [turns];
  ld.param.u64 %sink, [sink];
  mov.b32 %one, 0x3f803f80;
  mov.b32 %small, 0x3c003c00;
  mov.f32 %f0, 0f00000000;
  mov.f32 %f1, %f0;
  mov.f32 %f2, %f0;
  mov.f32 %f3, %f0;
  mov.f32 %f4, %f0;
  mov.f32 %f5, %f0;
  mov.f32 %f6, %f0;
  mov.f32 %f7, %f0;
  mov.f32 %f8, %f0;
  mov.f32 %f9, %f0;
  mov.f32 %f10, %f0;
  mov.f32 %f11, %f0;
  mov.f32 %f12, %f0;
  mov.f32 %f13, %f0;
  mov.f32 %f14, %f0;
  mov.f32 %f15, %f0;
again:
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    {%f0, %f1, %f2, %f3}, {%one, %one, %one, %one}, {%small, %small}, {%f0, %f1, %f2, %f3};
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    {%f4, %f5, %f6, %f7}, {%one, %one, %one, %one}, {%small, %small}, {%f4, %f5, %f6, %f7};
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    {%f8, %f9, %f10, %f11}, {%one, %one, %one, %one}, {%small, %small}, {%f8, %f9, %f10, %f11};
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    {%f12, %f13, %f14, %f15}, {%one, %one, %one, %one}, {%small, %small}, {%f12, %f13, %f14, %f15};
  sub.u32 %left, %left, 1;
  setp.ne.u32 %more, %left, 0;
  @%more bra again;
  add.f32 %f0, %f0, %f4;
  add.f32 %f8, %f8, %f12;
  add.f32 %f0, %f0, %f8;
  setp.lt.f32 %never, %f0, 0f00000000;
  @%never st.global.f32 [%sink], %f0;
  ret;
}
)";

constexpr unsigned kThreads = 256;
// Two blocks fill the shared memory of a multiprocessor of an H100 or H200.
constexpr unsigned kSharedBytes = 96 * 1024;
constexpr unsigned kBlocksOfMultiprocessor = 2;
// A block takes some ten microseconds, like a tile of a GEMM; a kernel takes some hundreds.
constexpr uint32_t kTurns = 512;
constexpr unsigned kWaves = 12;

// The driver's functions for kernels. The library never calls them.
struct KernelFunctions {
  decltype(&::cuModuleLoadData) load = nullptr;
  decltype(&::cuModuleUnload) unload = nullptr;
  decltype(&::cuModuleGetFunction) find = nullptr;
  decltype(&::cuFuncSetAttribute) set = nullptr;
  decltype(&::cuLaunchKernel) launch = nullptr;

  static Result<KernelFunctions> Find() {
    internal::SharedLibrary library = COMMPOOL_TRY(internal::SharedLibrary::FindLoaded("libcuda.so.1"));
    KernelFunctions found;
    const auto take = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.Symbol(name));
      return function != nullptr;
    };
    const bool all = take(found.load, "cuModuleLoadData") && take(found.unload, "cuModuleUnload") &&
                     take(found.find, "cuModuleGetFunction") && take(found.set, "cuFuncSetAttribute") &&
                     take(found.launch, "cuLaunchKernel");
    if (!all) return Status(StatusCode::kNotSupported, "this driver launches no kernels");
    return found;
  }
};

class KernelLoad : public ComputeLoad {
 public:
  KernelLoad(const internal::Driver& driver, const KernelFunctions& functions) : driver_(driver), calls_(functions) {}
  ~KernelLoad() override {
    if (module_ != nullptr) calls_.unload(module_);
  }

  Status Make(int device) {
    int multiprocessors = 0;
    driver_.cuda.cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    blocks_ = kWaves * kBlocksOfMultiprocessor * static_cast<unsigned>(multiprocessors);
    COMMPOOL_TRY(Check(calls_.load(&module_, ComputeLoadPtx()), "cuModuleLoadData"));
    COMMPOOL_TRY(Check(calls_.find(&function_, module_, "commpool_compute_load"), "cuModuleGetFunction"));
    return Check(calls_.set(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kSharedBytes),
                 "cuFuncSetAttribute");
  }

  Status Launch(CUstream stream) override {
    uint32_t turns = kTurns;
    CUdeviceptr sink = 0;
    void* parameters[] = {&turns, &sink};
    return Check(calls_.launch(function_, blocks_, 1, 1, kThreads, 1, 1, kSharedBytes, stream, parameters, nullptr),
                 "cuLaunchKernel");
  }

  std::string description() const override {
    return "a kernel of bf16 tensor-core products in " + std::to_string(blocks_) + " blocks, a stand-in for a GEMM";
  }

 private:
  Status Check(CUresult result, const char* call) const { return internal::CheckCuda(driver_, result, {.call = call}); }

  const internal::Driver& driver_;
  const KernelFunctions calls_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  unsigned blocks_ = 0;
};

class ModelledLoad : public ComputeLoad {
 public:
  explicit ModelledLoad(const internal::Driver& driver) : driver_(driver) {}
  ~ModelledLoad() override { driver_.cuda.cuMemFree(memory_); }

  Status Make() {
    return internal::CheckCuda(driver_, driver_.cuda.cuMemAlloc(&memory_, kBytes),
                               {.call = "cuMemAlloc", .bytes = kBytes});
  }
  Status Launch(CUstream stream) override {
    return internal::CheckCuda(driver_, driver_.cuda.cuMemsetD8Async(memory_, 0, kBytes, stream),
                               {.call = "cuMemsetD8Async", .bytes = kBytes});
  }
  std::string description() const override { return "a memset: the emulator runs no kernels"; }

 private:
  static constexpr uint64_t kBytes = 4 * internal::kMiB;

  const internal::Driver& driver_;
  CUdeviceptr memory_ = 0;
};

}  // namespace

const char* ComputeLoadPtx() { return kPtx; }

Result<std::unique_ptr<ComputeLoad>> MakeComputeLoad(const internal::Driver& driver, int device) {
  // `commpool emulate` makes the emulator look like CUDA's driver.
  if (driver.kind == internal::DriverChoice::kEmulated || driver.extension("commpoolEmulatorNow") != nullptr) {
    auto modelled = std::make_unique<ModelledLoad>(driver);
    if (Status status = modelled->Make(); !status.ok()) return status;
    return std::unique_ptr<ComputeLoad>(std::move(modelled));
  }
  KernelFunctions functions = COMMPOOL_TRY(KernelFunctions::Find());
  auto load = std::make_unique<KernelLoad>(driver, functions);
  if (Status status = load->Make(device); !status.ok()) return status;
  return std::unique_ptr<ComputeLoad>(std::move(load));
}

}  // namespace commpool::cli
