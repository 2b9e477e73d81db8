// A user's function hands out memory that is already in use: the pool refuses it and continues to serve.
#include <string>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class UserMemory : public PoolTest {
 protected:
  // Hands out the memory that the test names, else new memory.
  struct Functions {
    CUdeviceptr next = 0;
    int given_back = 0;

    static void* Allocate(ptrdiff_t bytes, int, CUstream_st*, void* context) {
      CUdeviceptr address = std::exchange(static_cast<Functions*>(context)->next, 0);
      if (address == 0) {
        EXPECT_EQ(SharedDriver()->cuda.cuMemAlloc(&address, static_cast<size_t>(bytes)), CUDA_SUCCESS);
      }
      return reinterpret_cast<void*>(address);
    }
    static void Free(void* pointer, ptrdiff_t, int, CUstream_st*, void* context) {
      auto& functions = *static_cast<Functions*>(context);
      ++functions.given_back;
      if (reinterpret_cast<CUdeviceptr>(pointer) == functions.borrowed) return;
      EXPECT_EQ(SharedDriver()->cuda.cuMemFree(reinterpret_cast<CUdeviceptr>(pointer)), CUDA_SUCCESS);
    }
    CUdeviceptr borrowed = 0;  // belongs to somebody else
  };

  PoolHandle CreateUser(const char* name) {
    PoolConfiguration configuration = Configured(name);
    configuration.backing.kind = BackingKind::kUser;
    configuration.backing.user = {Functions::Allocate, Functions::Free, &functions_};
    return Create(configuration);
  }
  // The user's function will return this address next, though it is in use already.
  void ExpectRefused(PoolHandle pool, CUdeviceptr address, const char* owner) {
    functions_.next = functions_.borrowed = address;
    const int given_back = functions_.given_back;
    const Status status = Get(pool).mode().Reserve(8 * kMiB);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    EXPECT_NE(status.message().find("lie in memory of pool " + std::string(owner)), std::string::npos)
        << status.message();
    EXPECT_EQ(functions_.given_back, given_back + 1) << "each piece goes back to the function that made it";
  }

  Functions functions_;
};

TEST_F(UserMemory, OfAnotherPoolIsRefused) {
  const PoolHandle lender = Create(Configured("lender"));
  const CUdeviceptr block = runtime().AllocateFrom(lender, 64 * kMiB, nullptr).value();
  const PoolHandle user = CreateUser("user");
  ExpectRefused(user, block, "lender");
  ExpectRefused(user, block + 16 * kMiB, "lender");
  EXPECT_TRUE(Get(user).mode().Reserve(8 * kMiB).ok()) << "the next memory is its own";
  EXPECT_TRUE(runtime().Free(block).ok());
}

TEST_F(UserMemory, OfTheSamePoolIsRefused) {
  const PoolHandle user = CreateUser("user");
  const CUdeviceptr block = runtime().AllocateFrom(user, 8 * kMiB, nullptr).value();
  ExpectRefused(user, block, "user");
  EXPECT_TRUE(runtime().Free(block).ok());
  functions_.borrowed = 0;
}

TEST_F(UserMemory, ThatEndsInAnotherPoolsIsRefused) {
  const PoolHandle lender = CreateUser("lender");
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuda().cuMemAlloc(&memory, 64 * kMiB), CUDA_SUCCESS);
  functions_.next = functions_.borrowed = memory + 2 * kMiB;
  ASSERT_TRUE(Get(lender).mode().Reserve(32 * kMiB).ok());
  const PoolHandle user = CreateUser("user");
  ExpectRefused(user, memory, "lender");
  functions_.borrowed = memory + 2 * kMiB;
  EXPECT_TRUE(Get(lender).Trim(0).ok());
  EXPECT_EQ(cuda().cuMemFree(memory), CUDA_SUCCESS);
}

}  // namespace
}  // namespace commpool::internal::testing
