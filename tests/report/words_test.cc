// How a report writes: words for people, JSON for its page.
#include "src/report/words.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "src/report/json_writer.h"

namespace commpool::internal::report {
namespace {

TEST(Words, CountThings) {
  EXPECT_EQ(Counted(1, "page"), "1 page");
  EXPECT_EQ(Counted(12'345, "page"), "12,345 pages");
  EXPECT_EQ(InThousands(0), "0");
  EXPECT_EQ(InThousands(999), "999");
  EXPECT_EQ(InThousands(1'000'000), "1,000,000");
  EXPECT_EQ(InHex(0x7f00), "0x7f00");
}

TEST(Words, NameTheFirstOfVeryManyRanks) {
  EXPECT_EQ(RanksInWords({3}), "rank 3");
  EXPECT_EQ(RanksInWords({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
}

TEST(Words, GiveTimesTheirUnit) {
  EXPECT_EQ(InWords(0), "0 ns");
  EXPECT_EQ(InWords(999), "999 ns");
  EXPECT_EQ(InWords(1'500), "1.5 us");
  EXPECT_EQ(InWords(3'000'000), "3 ms");
  EXPECT_EQ(InWords(12'345'678), "12 ms");
  EXPECT_EQ(InWords(3'600'000'000'000), "3,600 s");
}

std::string Written(const std::string& text) {
  std::ostringstream out;
  { JsonWriter(out).Text(text); }
  return out.str();
}

TEST(JsonWriterTest, WritesWhatAReaderReads) {
  std::ostringstream out;
  {
    JsonWriter json(out);
    json.BeginObject();
    json.Key("empty");
    json.BeginArray();
    json.EndArray();
    json.Key("numbers");
    json.BeginArray();
    json.Number(-1);
    json.Number(UINT64_MAX);
    json.Null();
    json.BeginObject();
    json.EndObject();
    json.EndArray();
    json.Key("text");
    json.Text("a");
    json.EndObject();
  }
  EXPECT_EQ(out.str(), R"({"empty":[],"numbers":[-1,9007199254740991,null,{}],"text":"a"})");
}

TEST(JsonWriterTest, EscapesWhatEndsATextOrAPage) {
  EXPECT_EQ(Written("</script>\"\\\n"), "\"\\u003c/script>\\\"\\\\\\u000a\"");
  for (int byte = 0; byte < 128; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    EXPECT_EQ(nlohmann::json::parse(Written(text)).get<std::string>(), text);
  }
}

TEST(JsonWriterTest, KeepsCharactersAndReplacesOtherBytes) {
  EXPECT_EQ(Written("Gr\xc3\xb6\xc3\x9f"
                    "e \xf0\x9f\x8c\x8d"),
            "\"Gr\xc3\xb6\xc3\x9f"
            "e \xf0\x9f\x8c\x8d\"");
  for (const std::string wrong : {"\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80"}) {
    EXPECT_NE(Written(wrong).find("\xef\xbf\xbd"), std::string::npos);
    EXPECT_FALSE(nlohmann::json::parse(Written(wrong), nullptr, false).is_discarded());
  }
}

}  // namespace
}  // namespace commpool::internal::report
