// Messages of ranks survive the wire. A message of another build, and one that was cut or damaged, is an error.
#include "src/library/registration/wire.h"

#include <gtest/gtest.h>

#include <random>

#include "src/library/base/field_list.h"
#include "src/library/registration/divergence.h"
#include "src/library/registration/intent.h"
#include "src/library/registration/rank_admission.h"

namespace commpool::internal {
namespace {

enum class Colour : uint8_t { kRed, kBlue = 200 };

struct Leg {
  int length = 0;
  bool left = false;
  using Fields = FieldList<&Leg::length, &Leg::left>;
  friend bool operator==(const Leg&, const Leg&) = default;
};

// One field of each kind. Each is also in the list of fields.
struct Beast {
  static constexpr const char* kName = "beast";
  uint64_t number = 0;
  Colour colour = Colour::kRed;
  std::string name = {};
  Status health = {};
  std::vector<Leg> legs = {};
  std::array<uint64_t, 2> eyes = {};
  std::optional<int> tail = {};
  using Fields =
      FieldList<&Beast::number, &Beast::colour, &Beast::name, &Beast::health, &Beast::legs, &Beast::eyes, &Beast::tail>;
};

// The same message in a build that knows one field more, or one less.
struct BeastWithWings : Beast {
  uint64_t wings = 2;
  using Fields = FieldList<&Beast::number, &Beast::colour, &Beast::name, &Beast::health, &Beast::legs, &Beast::eyes,
                           &Beast::tail, &BeastWithWings::wings>;
};

Beast Dragon() {
  return {.number = UINT64_MAX,
          .colour = Colour::kBlue,
          .name = std::string("a\0b", 3),
          .health = Status(StatusCode::kOutOfMemory, "hungry"),
          .legs = {{.length = -1, .left = true}, {.length = 7}},
          .eyes = {3, 4},
          .tail = 0};
}

std::string Written(const std::vector<uint64_t>& numbers) {
  std::string bytes(10 * numbers.size(), '\0');
  FieldWriter writer(bytes.data(), bytes.size());
  for (const uint64_t number : numbers) writer.Write(number);
  return bytes.substr(0, writer.used());
}

void ExpectDisagreement(const Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), StatusCode::kDisagreement);
  EXPECT_EQ(status.message(), message);
}
const std::string kAsk = ": do all ranks run the same build of commpool?";

TEST(Wire, GivesBackWhatWasWritten) {
  const Beast dragon = Dragon();
  const Beast read = Decode<Beast>(Encode(dragon), 1).value();
  EXPECT_EQ(read.number, dragon.number);
  EXPECT_EQ(read.colour, dragon.colour);
  EXPECT_EQ(read.name, dragon.name);
  EXPECT_EQ(read.health.code(), dragon.health.code());
  EXPECT_EQ(read.health.message(), dragon.health.message());
  EXPECT_EQ(read.legs, dragon.legs);
  EXPECT_EQ(read.eyes, dragon.eyes);
  EXPECT_EQ(read.tail, dragon.tail);
  EXPECT_FALSE(Decode<Beast>(Encode(Beast()), 1)->tail);
}

TEST(Wire, NamesBothSidesOfTwoVersions) {
  std::string other = Encode(Dragon());
  other[offsetof(WireHello, version)] = kWireVersion + 1;
  ExpectDisagreement(Decode<Beast>(other, 2).status(), "rank 2 speaks version 6, this rank version 5" + kAsk);
  ExpectDisagreement(DecodeAll<Beast>({Encode(Dragon()), Encode(Dragon()), other}).status(),
                     "rank 2 speaks version 6, rank 0 version 5" + kAsk);
  ExpectDisagreement(DecodeAll<Beast>({other, Encode(Dragon())}).status(),
                     "rank 1 speaks version 5, rank 0 version 6" + kAsk);
}

TEST(Wire, NamesBothSidesOfTwoSizes) {
  const std::string bytes = Encode(Dragon());
  const size_t size = bytes.size() - sizeof(WireHello);
  for (const auto& [other, sent] : {std::pair(bytes + "x", size + 1), {bytes.substr(0, bytes.size() - 1), size - 1}}) {
    ExpectDisagreement(
        Decode<Beast>(other, 2).status(),
        "rank 2 sent " + std::to_string(sent) + " bytes of its beast, this rank reads " + std::to_string(size) + kAsk);
  }
}

TEST(Wire, NamesBothSidesWhereOneKnowsAFieldMore) {
  const std::string less = Encode(Beast());
  const std::string more = Encode(BeastWithWings());
  const size_t size = less.size() - sizeof(WireHello);
  ExpectDisagreement(Decode<Beast>(more, 2).status(), "rank 2 sent " + std::to_string(size + 1) +
                                                          " bytes of its beast, this rank reads " +
                                                          std::to_string(size) + kAsk);
  ExpectDisagreement(DecodeAll<BeastWithWings>({more, less}).status(),
                     "rank 1 sent " + std::to_string(size) + " bytes of its beast, rank 0 reads more" + kAsk);
}

TEST(Wire, TakesNoMessageForAnother) {
  for (const std::string& other : {Encode(CallIntents()), std::string(), std::string(100, 'x')}) {
    ExpectDisagreement(Decode<Outcomes>(other, 4).status(), "rank 4 sent an unreadable outcome" + kAsk);
  }
}

TEST(Wire, SaysThatAMessageWasDamaged) {
  std::string bytes = Encode(Dragon());
  ++bytes.back();
  ExpectDisagreement(Decode<Beast>(bytes, 2).status(), "rank 2's beast was damaged on its way to this rank");
}

TEST(Wire, RefusesValuesThatAFieldCannotHave) {
  for (const std::vector<uint64_t>& numbers : {std::vector<uint64_t>{uint64_t{1} << 40, 1}, {1, 2}}) {
    const std::string bytes = Written(numbers);  // an int, and a bool
    FieldReader reader(bytes);
    Leg leg;
    reader.Read(leg);
    EXPECT_FALSE(reader.ok());
  }
}

template <typename Field>
void ExpectTooLong(size_t most_read) {
  const std::string bytes = Written({UINT64_MAX});
  Field field;
  FieldReader reader(bytes);
  reader.Read(field);
  EXPECT_FALSE(reader.ok());
  EXPECT_LE(field.size(), most_read);
}

TEST(Wire, RefusesACountBeyondTheEnd) {
  ExpectTooLong<std::vector<Leg>>(1);
  ExpectTooLong<std::string>(0);
}

// Every message of the library, with some contents.
template <typename Message>
void ExpectNothingButItself(const Message& message) {
  const std::string bytes = Encode(message);
  ASSERT_TRUE(Decode<Message>(bytes, 1).ok());
  const auto expect_refused = [&](const std::string& other) {
    EXPECT_EQ(Decode<Message>(other, 1).status().code(), StatusCode::kDisagreement);
    EXPECT_EQ(DecodeAll<Message>({bytes, other}).status().code(), StatusCode::kDisagreement);
  };
  for (size_t size = 0; size < bytes.size(); ++size) expect_refused(bytes.substr(0, size));
  for (const size_t more : {1, 8, 24, 1000}) expect_refused(bytes + std::string(more, '\0'));
  expect_refused(bytes + bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    expect_refused(flipped);
  }
}

TEST(EveryMessage, CutLongerOrWithOneBitFlippedIsRefused) {
  ExpectNothingButItself(Dragon());
  const Intent intent{
      .pool = "weights",
      .bytes = 1 << 20,
      .options = {"alignment_bytes 512"},
      .divergence = Status(StatusCode::kDisagreement, "they differ"),
      .freed = {1, 2},
      .report = {.held = {0, 3}, .passed = true, .number = 3, .rank = 1, .ranks = 2, .returns = {{3, 7}}},
      .segments = {2 << 20}};
  ExpectNothingButItself(CallIntents{{intent, intent}});
  ExpectNothingButItself(CallVerdict{.traced_rank = 1, .pools = {{.freed = {1}, .findings = {.home = true}}}});
  ExpectNothingButItself(Outcomes{{Status(), Status(StatusCode::kOutOfMemory, "no room")}});
  ExpectNothingButItself(Introduction{.address = "10.77.0.1:4000", .key = {1, 2}, .rank = 3});
  ExpectNothingButItself(PublishedCalls{{{.number = 7, .call = engine::SequenceCall::kFree, .value = 1}}});
  ExpectNothingButItself(PublishedDifference{"rank 0 made free of block 1"});
}

// A sender may compute the right checksum over any contents. The message is then read or refused, and nothing else
// happens.
TEST(EveryMessage, OfRandomContentsIsReadOrRefused) {
  std::mt19937_64 random(7);
  for (int turn = 0; turn < 20000; ++turn) {
    std::vector<uint64_t> numbers(random() % 40);
    for (uint64_t& number : numbers) number = random() % 8 == 0 ? random() : random() % 4;
    const std::string contents = Written(numbers);
    const auto expect_the_same = [&](const auto& read) {
      if (!read.ok()) return;
      EXPECT_EQ(Encode(*read), SealMessage(read->kName, contents));
    };
    expect_the_same(Decode<CallIntents>(SealMessage(CallIntents::kName, contents), 1));
    expect_the_same(Decode<CallVerdict>(SealMessage(CallVerdict::kName, contents), 0));
    expect_the_same(Decode<PublishedCalls>(SealMessage(PublishedCalls::kName, contents), 1));
  }
}

}  // namespace
}  // namespace commpool::internal
