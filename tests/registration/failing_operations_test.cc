// Each call of an operation to the driver, to NCCL or to the program's all-gather fails once. The operation's error
// names the call, the pool's books and memory are as before, and a second try works.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/registration/failing_world.h"

namespace commpool::internal::testing {
namespace {

constexpr const char* kCalls[] = {
#define COMMPOOL_CUDA(name, version) #name,
#define COMMPOOL_NCCL(name, version) #name,
#include "src/library/driver/cuda_functions.inc"
#include "src/library/driver/nccl_functions.inc"
#undef COMMPOOL_CUDA
#undef COMMPOOL_NCCL
};

// Calls that may fail while the operation succeeds.
const std::set<std::string> kSilent = {
    // Questions: an unknown answer counts as "missing", or as "captures", and is asked again where it matters.
    "cuDeviceGetAttribute", "cuDeviceGetPCIBusId", "cuDeviceCanAccessPeer", "cuMulticastGetGranularity", "cuMemGetInfo",
    "cuCtxGetDevice", "cuEventQuery", "ncclCommGetAsyncError", "ncclGetLastError", "ncclGetErrorString",
    "cuGetErrorName", "cuGetErrorString", "cuStreamGetId", "cuStreamIsCapturing",
    // A call that needs the context fails then. So do calls that a capture forbids, where a capture is open.
    "cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode",
    // The pool then makes a less shareable handle.
    "cuMemCreate",
    // The test's own calls.
    "cuStreamBeginCapture"};

bool Releases(const std::string& call) {
  return call.find("Destroy") != std::string::npos || call.find("Release") != std::string::npos ||
         call.find("Free") != std::string::npos || call.find("Unmap") != std::string::npos ||
         call.find("Deregister") != std::string::npos;
}

class FailingOperations : public DriverTest, public ::testing::WithParamInterface<Operation> {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("calls fail");
    AllowLeak("");  // what the driver failed to release; the operations' own leaks are checked below
  }

  // How often the operation makes each call.
  static std::map<std::string, int> CallsOf(const Operation& operation) {
    World world(operation.kind);
    ExpectOk({operation.before(world)});
    std::map<std::string, int> calls;
    for (const char* const call : kCalls) calls[call] = -static_cast<int>(CallCount(call));
    ExpectOk({operation.act(world)});
    for (const char* const call : kCalls) calls[call] += static_cast<int>(CallCount(call));
    return calls;
  }
  static void FailOnce(const Operation& operation, const std::string& call, int skip) {
    World world(operation.kind);
    ExpectOk({operation.before(world)});
    const State before = world.Look();
    const bool of_nccl = call.find("nccl") == 0;
    Status status;
    {
      const InjectedFault fault({.call = call.c_str(),
                                 .result = of_nccl ? static_cast<int>(ncclInternalError) : CUDA_ERROR_INVALID_VALUE,
                                 .skip = skip});
      ::testing::internal::CaptureStderr();
      status = operation.act(world);
    }
    const std::string told = status.message() + ::testing::internal::GetCapturedStderr();
    const bool inside_nccl = told.find("ncclAllGather") != std::string::npos;
    EXPECT_TRUE(inside_nccl || told.find(call) != std::string::npos) << "it ended with: " << told;
    if (Releases(call)) return;
    EXPECT_FALSE(status.ok()) << told;
    const State after = world.Look();
    if (operation.keeps != Keeps::kNothing) {
      EXPECT_EQ(after.books, before.books);
    }
    if (operation.keeps == Keeps::kState) {
      EXPECT_EQ(after.resources, before.resources);
    }
    if (operation.again == Again::kWorks) ExpectOk({operation.act(world)});
  }
};

TEST_P(FailingOperations, FailByTheCallsNameAndChangeNothing) {
  for (const auto& [call, count] : CallsOf(GetParam())) {
    const int times = call == "cuStreamQuery" ? std::min(count, 1) : count;  // the pool asks until the work is done
    for (int skip = 0; !kSilent.contains(call) && skip < times; ++skip) {
      SCOPED_TRACE(call + ", call " + std::to_string(skip + 1) + " of " + std::to_string(count));
      FailOnce(GetParam(), call, skip);
      if (Releases(call)) static_cast<void>(TakeReports());  // NCCL or the driver still holds these
    }
  }
}

class FailingCollectives : public FailingOperations {};

TEST_P(FailingCollectives, FailWhereTheAllGatherDoes) {
  int gathers = 0;
  {
    World world(Kind::kSymmetric);
    ExpectOk({GetParam().before(world)});
    gathers = -world.gathers();
    ExpectOk({GetParam().act(world)});
    gathers += world.gathers();
  }
  for (int skip = 0; skip < gathers; ++skip) {
    SCOPED_TRACE("gather " + std::to_string(skip + 1) + " of " + std::to_string(gathers));
    World world(Kind::kSymmetric);
    ExpectOk({GetParam().before(world)});
    const State before = world.Look();
    world.FailGatherAfter(skip);
    ExpectFailure(GetParam().act(world), StatusCode::kRemoteFailure, "the all-gather function given for agreement");
    // Rounds after the call to NCCL leave memory and registrations as they are, because other ranks may use them.
    if (GetParam().keeps != Keeps::kNothing) {
      EXPECT_EQ(world.Look().blocks(), before.blocks());
    }
  }
}

std::vector<Operation> CollectiveOperations() {
  std::vector<Operation> operations = Operations();
  std::erase_if(operations, [](const Operation& operation) { return operation.kind != Kind::kSymmetric; });
  return operations;
}

INSTANTIATE_TEST_SUITE_P(Of, FailingOperations, ::testing::ValuesIn(Operations()),
                         [](const auto& operation) { return operation.param.name; });
INSTANTIATE_TEST_SUITE_P(Of, FailingCollectives, ::testing::ValuesIn(CollectiveOperations()),
                         [](const auto& operation) { return operation.param.name; });

}  // namespace
}  // namespace commpool::internal::testing
