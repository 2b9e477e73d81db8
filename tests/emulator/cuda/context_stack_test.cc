// A thread's stack of contexts. Libraries push and pop; our library only sets the top.
#include <thread>
#include <vector>

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class ContextStack : public EmulatorTest {
 protected:
  static void SetUpTestSuite() { DeclareMachine(""); }

  void SetUp() override {
    EmulatorTest::SetUp();
    for (int device = 0; device < 2; ++device) contexts_.push_back(PrimaryContext::Retain(driver(), device).value());
    Set(nullptr);
  }
  void TearDown() override {
    contexts_.clear();
    EmulatorTest::TearDown();
  }

  CUcontext context(int device) const { return contexts_[static_cast<size_t>(device)].get(); }
  CUresult Set(CUcontext context) { return driver().cuda.cuCtxSetCurrent(context); }
  CUcontext Current() { return Get(driver().cuda.cuCtxGetCurrent); }
  static CUresult Push(CUcontext context) {
    return ExtensionFunction<CUresult(CUcontext)>("cuCtxPushCurrent_v2")(context);
  }
  static CUresult Pop(CUcontext* context) {
    return ExtensionFunction<CUresult(CUcontext*)>("cuCtxPopCurrent_v2")(context);
  }

 private:
  std::vector<PrimaryContext> contexts_;
};

TEST_F(ContextStack, GivesBackWhatWasPushedLast) {
  EXPECT_EQ(Push(context(0)), CUDA_SUCCESS);
  EXPECT_EQ(Push(context(1)), CUDA_SUCCESS);
  EXPECT_EQ(Current(), context(1));
  CUcontext popped = nullptr;
  EXPECT_EQ(Pop(&popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, context(1));
  EXPECT_EQ(Current(), context(0));
  EXPECT_EQ(Pop(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Current(), nullptr);
}

TEST_F(ContextStack, KeepsWhatIsBelowWhereTheTopIsReplaced) {
  EXPECT_EQ(Push(context(0)), CUDA_SUCCESS);
  EXPECT_EQ(Push(context(0)), CUDA_SUCCESS);
  EXPECT_EQ(Set(context(1)), CUDA_SUCCESS);
  EXPECT_EQ(Current(), context(1));
  EXPECT_EQ(Set(nullptr), CUDA_SUCCESS) << "which pops";
  EXPECT_EQ(Current(), context(0));
  EXPECT_EQ(Set(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Current(), nullptr);
  EXPECT_EQ(Set(nullptr), CUDA_SUCCESS) << "nothing is left, and that is no error";
}

TEST_F(ContextStack, IsEachThreadsOwn) {
  EXPECT_EQ(Push(context(0)), CUDA_SUCCESS);
  std::thread([&] {
    EXPECT_EQ(Current(), nullptr);
    EXPECT_EQ(Pop(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
  EXPECT_EQ(Pop(nullptr), CUDA_SUCCESS);
}

TEST_F(ContextStack, RefusesWhatIsNoContext) {
  EXPECT_EQ(Push(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  int none = 0;
  EXPECT_EQ(Push(reinterpret_cast<CUcontext>(&none)), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(Pop(nullptr), CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace commpool::internal::testing
