// Texts: names of users in messages can forge no line and end no quotation, a misspelt word leads to the nearest, and
// who waits hears of something that takes long: on a terminal, and elsewhere.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>

#include "src/library/base/bytes.h"
#include "src/library/base/environment.h"
#include "src/library/base/nearest.h"
#include "src/library/base/printable.h"
#include "src/library/base/progress.h"

namespace commpool::internal {
namespace {

TEST(Printable, LeavesOrdinaryNamesAsTheyAre) {
  EXPECT_EQ(Printable("gradients, rank 3"), "gradients, rank 3");
  EXPECT_EQ(Printable("Grad\u00e4"), "Grad\u00e4");
  EXPECT_EQ(Printable(""), "");
}

TEST(Printable, EscapesWhatWouldForgeALine) {
  EXPECT_EQ(Printable("a\nb\tc"), "a\\nb\\tc");
  EXPECT_EQ(Printable("\x1b[31m\x7f"), "\\x1b[31m\\x7f");
}

TEST(Printable, EscapesWhatWouldEndAQuotation) { EXPECT_EQ(Printable("\"\\"), "\\\"\\\\"); }

TEST(Printable, LeavesAnApostrophe) { EXPECT_EQ(Printable("PyTorch's cache"), "PyTorch's cache"); }

// JSON and Python accept only this.
TEST(Printable, EscapesWhatIsNoUtf8) {
  EXPECT_EQ(Printable("a\xffz"), "a\\xffz");
  EXPECT_EQ(Printable("\xe4"), "\\xe4") << "cut off";
  EXPECT_EQ(Printable("\xe2\x82"), "\\xe2\\x82") << "cut off";
  EXPECT_EQ(Printable("\xc0\x80 \xc1\xbf \xe0\x9f\xbf \xf0\x8f\xbf\xbf"),
            "\\xc0\\x80 \\xc1\\xbf \\xe0\\x9f\\xbf \\xf0\\x8f\\xbf\\xbf")
      << "longer than they need to be";
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair";
  EXPECT_EQ(Printable("\xf4\x90\x80\x80 \xf5\x80\x80\x80"), "\\xf4\\x90\\x80\\x80 \\xf5\\x80\\x80\\x80") << "too large";
  EXPECT_EQ(Printable("\u00e4\u20ac\U0001F600"), "\u00e4\u20ac\U0001F600");
}

TEST(Printable, CutsLongNames) {
  EXPECT_EQ(Printable("123456", 6), "123456");
  EXPECT_EQ(Printable("1234567", 6), "123...");
  EXPECT_EQ(Printable(std::string(100000, 'x')).size(), kMostNameBytes);
}

TEST(Printable, CutsBetweenCharacters) {
  EXPECT_EQ(Printable("12\u00e4567", 6), "12...");
  EXPECT_EQ(Printable("12\n4567", 6), "12...");
}

constexpr std::array<std::string_view, 4> kWords = {"limit", "segment", "mode", "moves"};

TEST(TheNearestWord, NeedsTheFewestChanges) {
  EXPECT_EQ(Nearest("limt", kWords), "limit") << "a letter is missing";
  EXPECT_EQ(Nearest("segmentt", kWords), "segment") << "one is too many";
  EXPECT_EQ(Nearest("mude", kWords), "mode") << "one is another";
  EXPECT_EQ(Nearest("segment", kWords), "segment");
}

TEST(TheNearestWord, IsTheFirstOfSeveral) { EXPECT_EQ(Nearest("move", kWords), "mode"); }

TEST(TheNearestWord, OfNoneIsEmpty) { EXPECT_EQ(Nearest("limit", {}), ""); }

// Variables that begin like ours: slips are told, with the nearest name.
std::vector<std::string> SlipsWith(const char* name) {
  setenv(name, "x", 1);
  std::vector<std::string> slips = Environment::Slips();
  unsetenv(name);
  return slips;
}

TEST(Environment, NamesTheNearestOfAVariableThatNothingReads) {
  EXPECT_EQ(SlipsWith("COMMPOOL_RECORDD"),
            std::vector<std::string>{"nothing reads the variable COMMPOOL_RECORDD; the nearest is COMMPOOL_RECORD"});
}

TEST(Environment, SaysNothingOfVariablesThatSomethingReads) {
  for (const char* name : {"COMMPOOL_RECORD", "COMMPOOL_INTERFACE", "COMMPOOL_NCCL_INCLUDE", "COMMPOOL_BAZEL_SKYLIB"}) {
    EXPECT_TRUE(SlipsWith(name).empty()) << name;
  }
}

TEST(Environment, SaysNothingOfVariablesOfOthers) { EXPECT_TRUE(SlipsWith("COMMPOOLING_RECORD").empty()); }

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
