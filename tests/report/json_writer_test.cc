#include "src/report/json_writer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace commpool::internal::report {
namespace {

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
