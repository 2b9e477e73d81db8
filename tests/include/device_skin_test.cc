// The C++ headers for a device's memory: limits, and other allocators, which are asked while their holders live.
// Compiled as C++17 and as C++20.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "commpool/device.h"
#include "commpool/pool.h"

namespace {

using commpool::Buffer;
using commpool::GiB;
using commpool::HolderOptions;
using commpool::MemoryHolder;
using commpool::MiB;
using commpool::Pool;
using commpool::Status;
using commpool::StatusCode;

static_assert(!std::is_copy_constructible_v<MemoryHolder> && !std::is_copy_assignable_v<MemoryHolder>);
static_assert(std::is_nothrow_move_constructible_v<MemoryHolder>);

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
  Pool pool = Pool::create({}).value();
  ASSERT_TRUE(commpool::set_device_limit(0, MiB(8)).ok());
  EXPECT_EQ(pool.reserve(MiB(16)).code(), StatusCode::kOutOfMemory);
  ASSERT_TRUE(commpool::set_device_limit(0, UINT64_MAX).ok());
  EXPECT_TRUE(pool.reserve(MiB(16)).ok());
  EXPECT_EQ(commpool::set_device_limit(99, MiB(8)).code(), StatusCode::kInvalidArgument);
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
