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
  using Query = CUresult(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  static Query* Find() { return ExtensionFunction<Query>("cuGetProcAddress_v2"); }
  static Answer Ask(const char* name, int version) {
    Answer answer;
    answer.result = Find()(name, &answer.function, version, 0, &answer.found);
    return answer;
  }
  static void ExpectNone(const char* name, int version, CUdriverProcAddressQueryResult why) {
    const Answer answer = Ask(name, version);
    EXPECT_EQ(answer.result, CUDA_SUCCESS) << name;
    EXPECT_EQ(answer.function, nullptr) << name;
    EXPECT_EQ(answer.found, why) << name;
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
  // The old 32-bit call is another function.
  ExpectNone("cuMemAlloc", 3010, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

TEST_F(EntryPoints, OfOtherNamesThereAreNone) {
  for (const char* name :
       {"", "cu", "cuNoSuchThing", "cuMemAlloc_v2", "cudaMalloc", "ncclAllReduce", "commpoolEmulatorNow"}) {
    ExpectNone(name, 13000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  }
}

TEST_F(EntryPoints, RefuseNullArguments) {
  Query* const ask = Find();
  void* function = nullptr;
  EXPECT_EQ(ask(nullptr, &function, 13000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask("cuMemAlloc", nullptr, 13000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask("cuMemAlloc", &function, 13000, 0, nullptr), CUDA_SUCCESS) << "who does not ask why gets no answer";
}

TEST_F(EntryPoints, OfTablesThereAreNone) {
  const auto ask = ExtensionFunction<CUresult(const void**, const CUuuid*)>("cuGetExportTable");
  const CUuuid any = {};
  const void* table = &any;
  EXPECT_EQ(ask(&table, &any), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(table, nullptr);
}

TEST_F(EntryPoints, OfMissingFunctionsAreNotFound) {
  for (const char* name : {"cuGraphUpload", "cuLogsRegisterCallback", "cuArrayCreate"}) {
    ExpectNone(name, 13000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);  // frameworks do without what a driver has not
  }
}

TEST_F(EntryPoints, OfMissingFunctionsAbortWithTheirNameWhenTheyAreLinked) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto upload = ExtensionFunction<void()>("cuGraphUpload");
  const auto array = ExtensionFunction<void()>("cuArrayCreate_v2");
  ASSERT_NE(upload, nullptr);
  ASSERT_NE(array, nullptr) << "under the name that cuda.h maps to";
  EXPECT_DEATH(upload(), "cuGraphUpload is not implemented");
  EXPECT_DEATH(array(), "cuArrayCreate is not implemented");
}

}  // namespace
}  // namespace commpool::internal::testing
