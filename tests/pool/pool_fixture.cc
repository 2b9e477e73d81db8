#include "tests/pool/pool_fixture.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tools/common/launch.h"
#include "tools/common/pool_invariants.h"

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

PoolTest::PoolTest()
    : context_(PrimaryContext::Retain(driver(), 0).value()),
      current_(driver(), context_),
      runtime_(std::make_unique<Runtime>(shared_driver())) {
  runtime_of_test = runtime_.get();
}

void PoolTest::EndRuntime() {
  runtime_of_test = nullptr;
  runtime_.reset();
}

PoolTest::~PoolTest() {
  runtime_of_test = nullptr;
  if (runtime_ == nullptr) return;
  for (const std::shared_ptr<Pool>& pool : runtime_->pools().All()) {
    CheckInvariants(*pool);
    Result<uint64_t> released = pool->Trim(0);
    EXPECT_TRUE(released.ok()) << released.status().message();
  }
  FreeFinishedLaunches();
}

void PoolTest::ExpectBytes(CUstream stream, CUdeviceptr address, uint64_t bytes, uint8_t value) {
  uint64_t wrong = bytes;
  Compare(stream, address, bytes, value, &wrong);
  Synchronize();
  EXPECT_EQ(wrong, 0u);
}

CUstream PoolTest::NewStream() {
  CUstream stream = nullptr;
  EXPECT_EQ(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  return stream;
}

void PoolTest::EndAndDropGraph(CUstream stream) {
  CUgraph graph = nullptr;
  EXPECT_EQ(cuda().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
}

PoolConfiguration PoolTest::Configured(const char* name, int device) {
  PoolConfiguration configuration;
  configuration.name = name;
  configuration.streams = Streams::kOutlive;
  configuration.backing.placement.device = device;
  return configuration;
}

}  // namespace commpool::internal::testing
