// The driver layer's own words for the emulator's launch are the emulator's.
#include "src/driver/emulator_symbols.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "src/emulator/extension.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal {
namespace {

template <typename Ours, typename Theirs>
constexpr bool kSameSize = sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);

#define COMMPOOL_SAME_FIELD(ours, theirs, field)                                                      \
  static_assert(offsetof(ours, field) == offsetof(theirs, field), #ours "::" #field " is elsewhere"); \
  static_assert(sizeof(ours::field) == sizeof(theirs::field), #ours "::" #field " is of another size")

static_assert(kSameSize<EmulatorRange, commpoolEmulatorRange>);
COMMPOOL_SAME_FIELD(EmulatorRange, commpoolEmulatorRange, address);
COMMPOOL_SAME_FIELD(EmulatorRange, commpoolEmulatorRange, bytes);

static_assert(kSameSize<EmulatorAccess, commpoolEmulatorAccess>);
COMMPOOL_SAME_FIELD(EmulatorAccess, commpoolEmulatorAccess, name);
COMMPOOL_SAME_FIELD(EmulatorAccess, commpoolEmulatorAccess, reads);
COMMPOOL_SAME_FIELD(EmulatorAccess, commpoolEmulatorAccess, read_count);
COMMPOOL_SAME_FIELD(EmulatorAccess, commpoolEmulatorAccess, writes);
COMMPOOL_SAME_FIELD(EmulatorAccess, commpoolEmulatorAccess, write_count);
COMMPOOL_SAME_FIELD(EmulatorAccess, commpoolEmulatorAccess, duration_us);

static_assert(std::is_same_v<EmulatorKernel, commpoolEmulatorKernel>);

// The same but for the names of the structures, which are held against each other above.
template <typename Access, typename Kernel>
using Launch = CUresult (*)(CUstream, const Access*, Kernel, void*);
static_assert(std::is_same_v<EmulatorLaunchFunction, Launch<EmulatorAccess, EmulatorKernel>>);
static_assert(
    std::is_same_v<decltype(&commpoolEmulatorLaunch), Launch<commpoolEmulatorAccess, commpoolEmulatorKernel>>);

static_assert(std::is_same_v<EmulatorNowFunction, decltype(&commpoolEmulatorNow)>);

class EmulatorSymbols : public testing::EmulatorTest {};

TEST_F(EmulatorSymbols, LaunchIsExported) { EXPECT_NE(driver().extension(kEmulatorLaunch), nullptr); }

TEST_F(EmulatorSymbols, NowIsExported) { EXPECT_NE(driver().extension(kEmulatorNow), nullptr); }

}  // namespace
}  // namespace commpool::internal
