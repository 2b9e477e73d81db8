// The header-only C++ classes over the shared library: buffers, pools, scopes and the holders of a device's memory own
// what they made. Compiled as C++17 and as C++20.
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "commpool/buffer.h"
#include "commpool/capture.h"
#include "commpool/device.h"
#include "commpool/pool.h"
#include "commpool/scope.h"
#include "commpool/status.h"

namespace commpool {
namespace {

static_assert((__cplusplus / 100) % 100 == (COMMPOOL_TEST_STANDARD == 17 ? 17 : 20), "compiled as another standard");
static_assert(!std::is_copy_constructible_v<Buffer> && !std::is_copy_assignable_v<Buffer>);
static_assert(!std::is_copy_constructible_v<Pool> && !std::is_copy_assignable_v<Pool>);
static_assert(!std::is_copy_constructible_v<PoolScope> && !std::is_move_assignable_v<PoolScope>);
static_assert(!std::is_constructible_v<Buffer, void*, std::uint64_t>, "a block is adopted by name");
static_assert(std::is_nothrow_move_constructible_v<Buffer> && std::is_nothrow_move_constructible_v<Pool>);

static_assert(!std::is_copy_constructible_v<MemoryHolder> && !std::is_copy_assignable_v<MemoryHolder>);
static_assert(std::is_nothrow_move_constructible_v<MemoryHolder>);

Pool MakePool() { return Pool::create({}).value(); }

uint64_t Blocks(const Pool& pool) { return pool.stats().value().allocated_blocks.current; }

TEST(BufferSkin, FreesItselfAtTheEndOfItsLife) {
  Pool pool = MakePool();
  {
    Buffer buffer = pool.allocate(1000, nullptr).value();
    EXPECT_NE(buffer.data(), nullptr);
    EXPECT_EQ(buffer.bytes(), 1000u);
    EXPECT_EQ(static_cast<void*>(buffer.as<float>()), buffer.data());
    EXPECT_EQ(Blocks(pool), 1u);
  }
  EXPECT_EQ(Blocks(pool), 0u);
}

TEST(BufferSkin, MovesItsBlock) {
  Pool pool = MakePool();
  Buffer source = pool.allocate(1000, nullptr).value();
  void* const data = source.data();
  Buffer target(std::move(source));
  EXPECT_EQ(target.data(), data);
  EXPECT_EQ(source.data(), nullptr);  // NOLINT: what a moved-from buffer holds is promised
  EXPECT_EQ(source.bytes(), 0u);
  Buffer assigned;
  assigned = std::move(target);
  EXPECT_EQ(assigned.data(), data);
  EXPECT_EQ(Blocks(pool), 1u);
  EXPECT_TRUE(assigned.free().ok());
  EXPECT_EQ(assigned.data(), nullptr);
  EXPECT_TRUE(assigned.free().ok()) << "an empty buffer has nothing to free";
  EXPECT_EQ(Blocks(pool), 0u);
}

TEST(BufferSkin, HandsItsBlockOver) {
  Pool pool = MakePool();
  void* data = nullptr;
  {
    Buffer buffer = pool.allocate(1000, nullptr).value();
    data = buffer.release();
    EXPECT_EQ(buffer.bytes(), 0u);
  }
  EXPECT_EQ(Blocks(pool), 1u);
  {
    const Buffer adopted = Buffer::adopt(data, 1000);
    EXPECT_EQ(adopted.data(), data);
    EXPECT_EQ(adopted.bytes(), 1000u);
  }
  EXPECT_EQ(Blocks(pool), 0u) << "its new owner freed it";
}

TEST(BufferSkin, BeginsWhereItsAllocationAsked) {
  Pool pool = MakePool();
  const Buffer shift = pool.allocate(512, nullptr).value();  // moves the next block off every large alignment
  for (const std::uint64_t alignment : {std::uint64_t{1}, std::uint64_t{512}, KiB(4), MiB(2)}) {
    Buffer buffer = pool.allocate(1000, nullptr, Alignment{alignment}).value();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % alignment, 0u);
    EXPECT_EQ(buffer.bytes(), 1000u);
    EXPECT_TRUE(buffer.record_stream(nullptr).ok());
    EXPECT_TRUE(buffer.free().ok());
  }
  Buffer released = pool.allocate(1000, nullptr, Alignment{MiB(1)}).value();
  EXPECT_EQ(commpool_free(released.release()), COMMPOOL_OK) << "the block's start, wherever the data lay";
  EXPECT_EQ(Blocks(pool), 1u);
  for (const std::uint64_t alignment : {std::uint64_t{0}, std::uint64_t{3}, MiB(4)}) {
    EXPECT_EQ(pool.allocate(1, nullptr, Alignment{alignment}).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(pool.allocate(0, nullptr, Alignment{KiB(4)}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.allocate(UINT64_MAX - 1, nullptr, Alignment{KiB(4)}).status().code(), StatusCode::kInvalidArgument);
}

TEST(BufferSkin, OutlivesItsPool) {
  Buffer buffer;
  {
    Pool pool = MakePool();
    buffer = pool.allocate(MiB(1), nullptr).value();
  }
  EXPECT_TRUE(buffer.record_stream(nullptr).ok());
  EXPECT_TRUE(buffer.free().ok());
}

TEST(BufferSkin, ThatIsEmptyHasNoStreamsToRecord) {
  EXPECT_EQ(Buffer().record_stream(nullptr).code(), StatusCode::kNotFound);
}

TEST(PoolSkin, MovesItsHandle) {
  Pool first = MakePool();
  const commpool_pool handle = first.handle();
  Pool second(std::move(first));
  EXPECT_EQ(second.handle(), handle);
  EXPECT_EQ(first.handle(), 0u);  // NOLINT: as above
  Pool third = MakePool();
  const commpool_pool other = third.handle();
  third = std::move(second);
  EXPECT_EQ(third.handle(), handle);
  EXPECT_EQ(second.handle(), other) << "it ends with its new owner";
}

TEST(PoolSkin, TellsWhatEachCallDid) {
  Pool pool = MakePool();
  EXPECT_TRUE(pool.reserve(MiB(30)).ok());
  EXPECT_GE(pool.stats().value().reserved_bytes.current, MiB(30));
  EXPECT_EQ(pool.reclaim().value(), 0u);
  EXPECT_TRUE(pool.verify().ok());
  EXPECT_EQ(pool.register_pending().value(), 0u);
  EXPECT_GE(pool.trim().value(), MiB(30));
  EXPECT_TRUE(pool.reset_peaks().ok());
  EXPECT_EQ(pool.stats().value().reserved_bytes.peak, 0u);
  EXPECT_TRUE(pool.grant({}).ok());
  EXPECT_FALSE(pool.revoke({99}).ok());
  EXPECT_TRUE(pool.close().ok());
  EXPECT_EQ(pool.allocate(1, nullptr).status().code(), StatusCode::kFailedPrecondition);
}

TEST(PoolSkin, OfTheLibraryItselfOutlivesItsObject) {
  commpool_pool handle = 0;
  {
    Pool pool = Pool::default_pool(0).value();
    handle = pool.handle();
    const Buffer buffer = allocate(KiB(1), nullptr, 0).value();
    EXPECT_GE(Blocks(pool), 1u);
  }
  EXPECT_EQ(Pool::default_pool(0).value().handle(), handle);
  EXPECT_EQ(Pool::default_pool(99).status().code(), StatusCode::kInvalidArgument);
}

TEST(PoolSkin, GivesFunctionsThatAllocateFromIt) {
  Pool pool = MakePool();
  const PlainFunctions functions = pool.functions().value();
  void* const block = functions.allocate(1000, 0, nullptr);
  EXPECT_EQ(Blocks(pool), 1u);
  functions.free(block, 1000, 0, nullptr);
  EXPECT_EQ(Blocks(pool), 0u);
}

TEST(PoolSkin, RefusesBadOptionsByName) {
  PoolOptions options;
  options.alignment_bytes = 3;
  const Status refused = Pool::create(options).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("alignment_bytes"), std::string::npos) << refused.message();
}

TEST(ScopeSkin, RoutesWhatItsFilterCatches) {
  Pool outer = MakePool();
  Pool inner = MakePool();
  const PoolScope outer_scope(outer);
  Buffer in_outer = allocate(KiB(1), nullptr, 0).value();
  {
    ScopeOptions options;
    options.filter = Filter::kProcess;
    const PoolScope inner_scope(inner, options);
    Buffer in_inner = allocate(KiB(1), nullptr, 0).value();
    EXPECT_EQ(Blocks(inner), 1u);
  }
  Buffer again = allocate(KiB(1), nullptr, 0).value();
  EXPECT_EQ(Blocks(inner), 0u);
  EXPECT_EQ(Blocks(outer), 2u);
}

TEST(ScopeSkin, TakesItsSizesAndHandsOnWhereItsPoolIsExhausted) {
  PoolOptions pool_options;
  pool_options.limit_bytes = MiB(2);
  Pool pool = Pool::create(pool_options).value();
  ScopeOptions options;
  options.sizes = {KiB(1), MiB(4)};
  options.exhaustion = Exhaustion::kNextScope;
  const PoolScope scope(pool, options);
  const Buffer small = allocate(512, nullptr, 0).value();
  EXPECT_EQ(Blocks(pool), 0u);
  const Buffer caught = allocate(KiB(1), nullptr, 0).value();
  EXPECT_EQ(Blocks(pool), 1u);
  const Buffer handed_on = allocate(MiB(4), nullptr, 0).value();
  EXPECT_EQ(Blocks(pool), 1u);
}

#if __cplusplus >= 202002L
TEST(ScopeSkin, NamesItsRulesWhereItBegins) {
  Pool pool = MakePool();
  const PoolScope scope(pool, {.sizes = {MiB(1), UINT64_MAX}, .exhaustion = Exhaustion::kNextScope});
  const Buffer small = allocate(KiB(1), nullptr, 0).value();
  EXPECT_EQ(Blocks(pool), 0u);
}
#endif

TEST(ScopeSkin, BeginsWithoutAnException) {
  Pool pool = MakePool();
  {
    Result<PoolScope> scope = PoolScope::begin(pool);
    ASSERT_TRUE(scope.ok()) << scope.status().message();
    const PoolScope moved(std::move(*scope));
    const Buffer routed = allocate(KiB(1), nullptr, 0).value();
    EXPECT_EQ(Blocks(pool), 1u);
  }
  const Buffer outside = allocate(KiB(1), nullptr, 0).value();
  EXPECT_EQ(Blocks(pool), 0u) << "it has ended, once";
  EXPECT_EQ(PoolScope::begin(commpool_pool{987654}).status().code(), StatusCode::kNotFound);
}

TEST(ScopeSkin, ServesWhatItCatchesAlone) {
  Pool pool = MakePool();
  EXPECT_EQ(allocate_in_scope(KiB(1), nullptr, 0).value().data(), nullptr) << "no scope is open";
  const PoolScope scope(pool);
  const Buffer caught = allocate_in_scope(KiB(1), nullptr, 0).value();
  EXPECT_NE(caught.data(), nullptr);
  EXPECT_EQ(Blocks(pool), 1u);
  EXPECT_EQ(allocate_in_scope(0, nullptr, 0).status().code(), StatusCode::kInvalidArgument);
}

TEST(CaptureSkin, BeginsWithAnExceptionOrWithout) {
  Pool pool = MakePool();
  EXPECT_EQ(CaptureScope::begin(pool, nullptr).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THROW(static_cast<void>(CaptureScope(pool, nullptr)), Error) << "the stream is not being captured";
}

TEST(ScopeSkin, ThrowsWhereItCannotBegin) {
  try {
    const PoolScope scope(commpool_pool{987654});
    FAIL() << "a scope on no pool began";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), StatusCode::kNotFound);
    EXPECT_NE(std::string(error.what()).find("987654"), std::string::npos) << error.what();
  }
}

TEST(ResultSkin, HoldsAValueOrSaysWhyThereIsNone) {
  Result<int> value(3);
  EXPECT_TRUE(value.ok());
  EXPECT_EQ(*value, 3);
  EXPECT_EQ(value.value(), 3);
  EXPECT_TRUE(value.status().ok());
  const Result<int> failure(Status(StatusCode::kExhausted, "full"));
  EXPECT_FALSE(failure.ok());
  EXPECT_EQ(failure.status().message(), "full");
  try {
    static_cast<void>(failure.value());
    FAIL() << "a failure has no value";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), StatusCode::kExhausted);
    EXPECT_STREQ(error.what(), "full");
  }
}

TEST(StatusSkin, ThrowsOnlyWhereItIsNotOk) {
  EXPECT_NO_THROW(Status().or_throw());
  EXPECT_THROW(Status(StatusCode::kNotFound, "gone").or_throw(), Error);
}

TEST(WindowSkin, FindsNoneOfAFixedPool) {
  Pool pool = MakePool();
  Buffer buffer = pool.allocate(1000, nullptr).value();
  EXPECT_EQ(window_of(buffer.data(), nullptr).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(window_of(nullptr, nullptr).status().code(), StatusCode::kNotFound);
}

TEST(NvlsSkin, SaysWhyItCannotBeAsked) {
  Pool pool = MakePool();
  Buffer buffer = pool.allocate(1000, nullptr).value();
  EXPECT_EQ(nvls_eligible(buffer.data(), 0, nullptr).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(nvls_eligible(nullptr, 1, nullptr).status().code(), StatusCode::kNotFound);
}

TEST(StreamSkin, DefaultStreamsAreNotReleased) {
  EXPECT_EQ(release_stream(nullptr).code(), StatusCode::kInvalidArgument);
}

// The message of a request on a device of 141 GiB that is too full.
std::string OutOfMemory() {
  Pool pool = Pool::create({}).value();
  const Buffer held = pool.allocate(GiB(100), nullptr).value();
  const Status status = pool.allocate(GiB(90), nullptr).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  return status.message();
}
bool IsNamed(const std::string& name) { return OutOfMemory().find("\n  " + name + " ") != std::string::npos; }

HolderOptions Named(const char* name) {
  HolderOptions options;
  options.name = name;
  return options;
}

TEST(DeviceSkin, LimitsThePoolsOfADevice) {
  Pool pool = MakePool();
  ASSERT_TRUE(set_device_limit(0, MiB(8)).ok());
  EXPECT_EQ(pool.reserve(MiB(16)).code(), StatusCode::kOutOfMemory);
  ASSERT_TRUE(set_device_limit(0, UINT64_MAX).ok());
  EXPECT_TRUE(pool.reserve(MiB(16)).ok());
  EXPECT_EQ(set_device_limit(99, MiB(8)).code(), StatusCode::kInvalidArgument);
}

TEST(HolderSkin, IsAskedForWhatIsMissing) {
  int device = -1;
  std::uint64_t bytes = 0;
  HolderOptions options = Named("framework");
  options.cached_bytes = [](int) { return MiB(3); };
  options.release = [&](int asked_device, std::uint64_t asked_bytes) -> std::uint64_t {
    device = asked_device;
    bytes = asked_bytes;
    return 0;
  };
  const MemoryHolder holder = MemoryHolder::add(std::move(options)).value();
  const std::string message = OutOfMemory();
  EXPECT_NE(message.find("3 MiB", message.find("\n  framework ")), std::string::npos) << message;
  EXPECT_EQ(device, 0);
  EXPECT_EQ(bytes, GiB(90));
}

TEST(HolderSkin, EndsWithItsLife) {
  {
    const MemoryHolder holder = MemoryHolder::add(Named("short")).value();
    EXPECT_TRUE(IsNamed("short"));
  }
  EXPECT_FALSE(IsNamed("short"));
}

TEST(HolderSkin, EndsOnceWhereItIsRemoved) {
  MemoryHolder holder = MemoryHolder::add(Named("removed")).value();
  EXPECT_TRUE(holder.remove().ok());
  EXPECT_FALSE(IsNamed("removed"));
  EXPECT_TRUE(holder.remove().ok()) << "there is nothing left to remove";
}

TEST(HolderSkin, MovesWithItsFunctions) {
  HolderOptions options = Named("moved");
  int asked = 0;
  options.cached_bytes = [&asked](int) -> std::uint64_t { return ++asked, 0; };
  MemoryHolder source = MemoryHolder::add(std::move(options)).value();
  MemoryHolder target(std::move(source));
  MemoryHolder assigned = MemoryHolder::add(Named("first")).value();
  assigned = std::move(target);
  EXPECT_TRUE(IsNamed("moved"));
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(assigned.remove().ok());
  EXPECT_FALSE(IsNamed("moved"));
}

TEST(HolderSkin, ThatThrowsGivesNothing) {
  HolderOptions options = Named("thrower");
  options.cached_bytes = [](int) -> std::uint64_t { throw std::runtime_error("cached"); };
  options.release = [](int, std::uint64_t) -> std::uint64_t { throw std::runtime_error("release"); };
  const MemoryHolder holder = MemoryHolder::add(std::move(options)).value();
  EXPECT_TRUE(IsNamed("thrower"));
}

TEST(HolderSkin, IsNotRemovedByItsOwnFunction) {
  MemoryHolder* self = nullptr;
  Status removed;
  HolderOptions options = Named("self");
  options.release = [&](int, std::uint64_t) -> std::uint64_t {
    removed = self->remove();
    return 0;
  };
  MemoryHolder holder = MemoryHolder::add(std::move(options)).value();
  self = &holder;
  EXPECT_TRUE(IsNamed("self"));
  EXPECT_EQ(removed.code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace commpool
