// What a user hears of something that takes long: on a terminal, and elsewhere.
#include "src/library/base/progress.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "src/library/base/bytes.h"

namespace commpool::internal {
namespace {

// A clock that tests move, and what was told.
struct World {
  Progress::Time now;
  std::string shown;
  std::string logged;
};
World world;  // the functions below have no context

Progress::Surroundings Around(bool terminal) {
  world = World();
  return {.now = [] { return world.now; },
          .terminal = terminal,
          .show = [](const std::string& text) { world.shown += text; },
          .log = [](const std::string& line) { world.logged += line + "\n"; }};
}

void Pass(int milliseconds) { world.now += std::chrono::milliseconds(milliseconds); }

TEST(Progress, IsALineOnATerminalThatIsWrittenAgain) {
  {
    Progress progress("keeping", 4 * kMiB, Around(true));
    Pass(900);
    progress.Advance(kMiB);
    EXPECT_EQ(world.shown, "");
    Pass(200);
    progress.Advance(kMiB);
    EXPECT_EQ(world.shown, "\rkeeping 2 MiB of 4 MiB in 1.1 s");
    Pass(100);
    progress.Advance(kMiB);
    EXPECT_EQ(world.shown, "\rkeeping 2 MiB of 4 MiB in 1.1 s") << "not for each part";
    Pass(800);
    progress.Advance(kMiB);
  }
  EXPECT_EQ(world.shown,
            "\rkeeping 2 MiB of 4 MiB in 1.1 s\rkeeping 4 MiB of 4 MiB in 2.0 s\rkeeping 4 MiB of 4 MiB in 2.0 s\n");
  EXPECT_EQ(world.logged, "");
}

TEST(Progress, IsOneLineOfTheLogWithoutATerminal) {
  {
    Progress progress("waking", 4 * kMiB, Around(false));
    Pass(1500);
    progress.Advance(4 * kMiB);
    EXPECT_EQ(world.logged, "");
  }
  EXPECT_EQ(world.shown, "");
  EXPECT_EQ(world.logged, "waking 4 MiB of 4 MiB in 1.5 s\n");
}

TEST(Progress, ShowsNothingOfShortWork) {
  for (const bool terminal : {false, true}) {
    {
      Progress progress("keeping", kMiB, Around(terminal));
      Pass(999);
      progress.Advance(kMiB);
    }
    EXPECT_EQ(world.shown + world.logged, "");
  }
}

}  // namespace
}  // namespace commpool::internal
