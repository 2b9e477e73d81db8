// cuGetProcAddress by version, and functions that the emulator does not have.
#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class EntryPoints : public EmulatorTest {
 protected:
  static void SetUpTestSuite() { DeclareMachine(""); }

  struct Answer {
    CUresult result = CUDA_SUCCESS;
    void* function = nullptr;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
  };
  static Answer Ask(const char* name, int version) {
    const auto ask = ExtensionFunction<CUresult(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*)>(
        "cuGetProcAddress_v2");
    Answer answer;
    answer.result = ask(name, &answer.function, version, 0, &answer.found);
    return answer;
  }
};

TEST_F(EntryPoints, AreFoundFromTheirVersionOn) {
  for (const int version : {3020, 12000, 13000}) {
    const Answer answer = Ask("cuMemAlloc", version);
    EXPECT_EQ(answer.result, CUDA_SUCCESS) << version;
    EXPECT_NE(answer.function, nullptr) << version;
    EXPECT_EQ(answer.found, CU_GET_PROC_ADDRESS_SUCCESS);
  }
}

TEST_F(EntryPoints, AreNotFoundBeforeTheirVersion) {
  const Answer answer = Ask("cuMemAlloc", 3010);
  EXPECT_EQ(answer.result, CUDA_SUCCESS);
  EXPECT_EQ(answer.function, nullptr) << "the old 32-bit call is another function";
  EXPECT_EQ(answer.found, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

TEST_F(EntryPoints, OfOtherNamesThereAreNone) {
  for (const char* name :
       {"", "cu", "cuNoSuchThing", "cuMemAlloc_v2", "cudaMalloc", "ncclAllReduce", "commpoolEmulatorNow"}) {
    const Answer answer = Ask(name, 13000);
    EXPECT_EQ(answer.result, CUDA_SUCCESS) << name;
    EXPECT_EQ(answer.function, nullptr) << name;
    EXPECT_EQ(answer.found, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) << name;
  }
}

TEST_F(EntryPoints, RefuseNullArguments) {
  const auto ask = ExtensionFunction<CUresult(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*)>(
      "cuGetProcAddress_v2");
  void* function = nullptr;
  EXPECT_EQ(ask(nullptr, &function, 13000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask("cuMemAlloc", nullptr, 13000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask("cuMemAlloc", &function, 13000, 0, nullptr), CUDA_SUCCESS) << "who does not ask why gets no answer";
}

TEST_F(EntryPoints, OfWhatIsNotEmulatedAbortWithTheirName) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Answer launch = Ask("cuGraphUpload", 10000);
  const Answer capture = Ask("cuGraphClone", 10000);
  ASSERT_NE(launch.function, nullptr) << "asking is harmless: frameworks ask for everything";
  ASSERT_NE(capture.function, nullptr);
  EXPECT_NE(launch.function, capture.function);
  EXPECT_EQ(Ask("cuGraphUpload", 10000).function, launch.function);
  EXPECT_DEATH(reinterpret_cast<void (*)()>(launch.function)(), "cuGraphUpload is not implemented");
  EXPECT_DEATH(reinterpret_cast<void (*)()>(capture.function)(), "cuGraphClone is not implemented");
}

}  // namespace
}  // namespace commpool::internal::testing
