// CUDA does not survive fork(): the C ABI refuses every call of a child with a message.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "tests/c_api/c_abi.h"

namespace commpool::internal::testing {
namespace {

// Runs `call` in a child; the parent's test fails where it is not refused.
void ExpectRefused(const char* name, const std::function<commpool_status()>& call) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const commpool_status status = call();
    const bool told = std::string(commpool_last_error()).find("forked child") != std::string::npos;
    _exit(status == COMMPOOL_FAILED_PRECONDITION && told ? 0 : 1);
  }
  int result = -1;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 0) << name << " was not refused";
}

TEST(ForkedChildAbi, IsRefusedByEveryKindOfCall) {
  const OwnedPool pool;
  const OpenScope scope(pool);
  void* const block = AllocateCaught(4096);

  const auto options = Initialised(commpool_pool_options_init);
  const commpool_pool several[] = {pool, pool};
  commpool_pool new_pool = 0;
  commpool_scope another = 0;
  commpool_capture capture = 0;
  commpool_plain_allocate allocate = nullptr;
  commpool_plain_free release = nullptr;
  int eligible = 0;
  void* pointer = nullptr;
  ExpectRefused("allocate", [&] { return commpool_allocate(0, 4096, nullptr, &pointer); });
  ExpectRefused("allocate_in_scope", [&] { return commpool_allocate_in_scope(0, 4096, nullptr, &pointer); });
  ExpectRefused("pool_allocate", [&] { return commpool_pool_allocate(pool, 4096, nullptr, &pointer); });
  ExpectRefused("free", [&] { return commpool_free(block); });
  ExpectRefused("record_stream", [&] { return commpool_record_stream(block, nullptr); });
  ExpectRefused("scope_begin", [&] { return commpool_scope_begin(pool, nullptr, &another); });
  ExpectRefused("scope_end", [&] { return commpool_scope_end(scope.handle); });
  ExpectRefused("capture_begin", [&] { return commpool_capture_begin(pool, nullptr, &capture); });
  ExpectRefused("capture_end", [&] { return commpool_capture_end(1); });
  ExpectRefused("pool_create", [&] { return commpool_pool_create(&options, &new_pool); });
  ExpectRefused("pool_reserve", [&] { return commpool_pool_reserve(pool, 4096); });
  ExpectRefused("pools_reserve", [&] { return commpool_pools_reserve(several, 2, 4096); });
  ExpectRefused("pool_functions", [&] { return commpool_pool_functions(pool, &allocate, &release); });
  ExpectRefused("nvls_eligible", [&] { return commpool_nvls_eligible(block, 1, nullptr, &eligible, nullptr); });
  ncclWindow_vidmem* window = nullptr;
  uint64_t offset = 0;
  ExpectRefused("window_of", [&] { return commpool_window_of(block, nullptr, &window, &offset); });
  ExpectRefused("set_device_limit", [&] { return commpool_set_device_bound(0, COMMPOOL_DEVICE_LIMIT, UINT64_MAX); });
  ExpectRefused("set_budget", [&] { return commpool_set_budget("kv", 1); });
  ExpectRefused("budget_use", [&] { return commpool_budget_use(0, nullptr, nullptr, nullptr, nullptr); });
  ExpectRefused("release_idle", [&] { return commpool_release_idle(0, COMMPOOL_DEVICE_IDLE, nullptr); });
  ExpectRefused("set_headroom", [&] { return commpool_set_device_bound(0, COMMPOOL_DEVICE_HEADROOM, 0); });

  EXPECT_EQ(commpool_free(block), COMMPOOL_OK) << "the parent goes on: " << commpool_last_error();
}

}  // namespace
}  // namespace commpool::internal::testing
