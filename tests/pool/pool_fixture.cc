#include "tests/pool/pool_fixture.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/library/pool/blocks/block_store.h"
#include "tools/common/launch.h"

namespace commpool::internal::testing {

namespace {

Runtime* runtime_of_test = nullptr;  // of the running test; null once it has ended its runtime

}  // namespace

TestStream::TestStream() {
  EXPECT_EQ(SharedDriver()->cuda.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  if (runtime_of_test != nullptr) {
    EXPECT_TRUE(runtime_of_test->PromiseStream(stream_).ok());
  }
}

TestStream::~TestStream() {
  if (stream_ == nullptr) return;
  if (runtime_of_test != nullptr) {
    EXPECT_TRUE(runtime_of_test->ReleaseStream(stream_).ok());
  }
  DestroyUnreleased();
}

void TestStream::DestroyUnreleased() {
  EXPECT_EQ(SharedDriver()->cuda.cuStreamDestroy(std::exchange(stream_, nullptr)), CUDA_SUCCESS);
}

void Fill(CUstream stream, CUdeviceptr address, uint64_t bytes, uint8_t value) {
  Status status = Launch(
      *SharedDriver(), stream, {}, {{address, bytes}},
      [=](const std::vector<const void*>&, const std::vector<void*>& writes) { std::memset(writes[0], value, bytes); });
  EXPECT_TRUE(status.ok()) << status.message();
}

void Compare(CUstream stream, CUdeviceptr address, uint64_t bytes, uint8_t value, uint64_t* wrong) {
  Status status = Launch(*SharedDriver(), stream, {{address, bytes}}, {},
                         [=](const std::vector<const void*>& reads, const std::vector<void*>&) {
                           const auto* data = static_cast<const uint8_t*>(reads[0]);
                           *wrong = bytes - static_cast<uint64_t>(std::count(data, data + bytes, value));
                         });
  EXPECT_TRUE(status.ok()) << status.message();
}

PoolTest::PoolTest(std::shared_ptr<const Driver> driver)
    : context_(PrimaryContext::Retain(*SharedDriver(), 0).value()),
      current_(*SharedDriver(), context_),
      runtime_(std::make_unique<Runtime>(std::move(driver))) {
  runtime_of_test = runtime_.get();
}

void PoolTest::EndRuntime() {
  runtime_of_test = nullptr;
  runtime_.reset();
}

void PoolTest::RestartRuntime(Settings settings) {
  EndRuntime();
  runtime_ = std::make_unique<Runtime>(shared_driver(), std::move(settings));
  runtime_of_test = runtime_.get();
}

void PoolTest::TearDown() {
  if (runtime_ == nullptr) return;
  std::vector<CUdeviceptr> live;
  for (const std::shared_ptr<Pool>& pool : runtime_->pools().All()) {
    for (const commpool_block& block : ListBlocks(pool->basis(), pool->blocks())) {
      if (block.state == COMMPOOL_BLOCK_LIVE) live.push_back(reinterpret_cast<CUdeviceptr>(block.pointer));
    }
  }
  EXPECT_LE(static_cast<int64_t>(live.size()), std::max<int64_t>(served_, 0)) << "the test has freed some, or got none";
  FreeAll(live);
}

PoolTest::~PoolTest() {
  runtime_of_test = nullptr;
  if (runtime_ == nullptr) return;
  for (const std::shared_ptr<Pool>& pool : runtime_->pools().All()) {
    CheckInvariants(*pool);
    ExpectOk(pool->Trim(0).status());
    const bool is_the_programs = !pool->basis().life.destroyed() && pool->basis().CheckMayEnd().ok();
    if (is_the_programs) Destroy(pool->handle());
  }
  FreeFinishedLaunches();
}

CUdeviceptr PoolTest::Allocate(PoolHandle pool, uint64_t bytes, CUstream stream, const char* file, int line) {
  const Result<CUdeviceptr> block = TryAllocate(pool, bytes, stream);
  ExpectOk(block.status(), file, line);
  return block.ok() ? *block : 0;
}

void PoolTest::ExpectBytes(CUstream stream, CUdeviceptr address, uint64_t bytes, uint8_t value, const char* file,
                           int line) {
  const ::testing::ScopedTrace trace(file, line, "these bytes");
  uint64_t wrong = bytes;
  Compare(stream, address, bytes, value, &wrong);
  Synchronize();
  EXPECT_EQ(wrong, 0u);
}

CUstream PoolTest::NewStream(CUstream_flags flags) {
  CUstream stream = nullptr;
  EXPECT_EQ(cuda().cuStreamCreate(&stream, flags), CUDA_SUCCESS);
  return stream;
}

unsigned long long PoolTest::AccessOf(int device, CUdeviceptr address) {
  const CUmemLocation location{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  unsigned long long flags = ~0ull;
  EXPECT_EQ(cuda().cuMemGetAccess(&flags, &location, address), CUDA_SUCCESS);
  return flags;
}

void PoolTest::EndAndDropGraph(CUstream stream) {
  CUgraph graph = nullptr;
  EXPECT_EQ(cuda().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
}

PoolConfiguration PoolTest::Configured(const char* name, int device) {
  return ConfiguredWith({.name = name, .device = device});
}

PoolConfiguration PoolTest::ConfiguredWith(const PoolOptions& options) {
  PoolConfiguration configuration;
  configuration.name = options.name;
  configuration.backing.kind = options.kind;
  configuration.backing.placement.device = options.device;
  configuration.mode = options.mode;
  configuration.streams = options.streams;
  configuration.deadline_ms = options.deadline_ms;
  configuration.peers = options.peers;
  configuration.segment_bytes = options.segment_bytes;
  configuration.release_threshold_bytes = options.release_threshold_bytes;
  configuration.limit_bytes = options.limit_bytes;
  return configuration;
}

}  // namespace commpool::internal::testing
