// Program names in messages: no name can forge a line or end a quotation.
#include "src/library/base/printable.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(Printable("a\xff"
                      "b"),
            "a\\xffb");
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

}  // namespace
}  // namespace commpool::internal
