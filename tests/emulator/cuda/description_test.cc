// Parses COMMPOOL_EMULATOR: defaults, every key, and the messages for wrong values.
#include "src/emulator/description.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "src/emulator/named_machines.h"
#include "src/library/base/bytes.h"

namespace commpool::internal::emulator {
namespace {

std::string RefusalOf(const std::string& text) {
  const Result<Description> description = Description::Parse(text);
  if (description.ok()) return "";
  EXPECT_EQ(description.status().code(), StatusCode::kInvalidArgument) << text;
  return description.status().message();
}

void ExpectRefused(const std::string& text, const std::string& part) {
  const std::string message = RefusalOf(text);
  EXPECT_NE(message.find("COMMPOOL_EMULATOR"), std::string::npos) << text << ": " << message;
  EXPECT_NE(message.find(part), std::string::npos) << text << ": " << message;
}

TEST(EmulatorDescription, OfNothingIsTheDefaults) {
  const Description description = Description::Parse("").value();
  EXPECT_EQ(description.devices(), 4);
  EXPECT_EQ(description.device_bytes(), 141 * kGiB);
  EXPECT_EQ(description.numa_nodes(), 2);
  EXPECT_EQ(description.host_bytes(), 256 * kGiB);
  EXPECT_EQ(description.granularity(), 2 * kMiB);
  EXPECT_EQ(description.seed(), 1u);
  EXPECT_TRUE(description.faults().empty());
}

TEST(EmulatorDescription, EveryDefaultCanBeDeclared) {
  for (const KnownKey& key : KnownKeys()) {
    const std::string text = std::string(key.name) + "=" + key.default_value;
    const Result<Description> description = Description::Parse(text);
    ASSERT_TRUE(description.ok()) << description.status().message();
    EXPECT_STREQ(description->Value(key.name), key.default_value);
    EXPECT_STRNE(key.meaning, "") << key.name;
  }
}

TEST(EmulatorDescription, NamesEachKeyOnce) {
  std::set<std::string> names;
  for (const KnownKey& key : KnownKeys()) EXPECT_TRUE(names.insert(key.name).second) << key.name;
}

TEST(EmulatorDescription, TakesWhatIsDeclared) {
  const Description description =
      Description::Parse("devices=2, memory=80GiB;numa_nodes=1,host_memory=1GiB,granularity=64KiB,seed=7,nccl=2.19.3")
          .value();
  EXPECT_EQ(description.devices(), 2);
  EXPECT_EQ(description.device_bytes(), 80 * kGiB);
  EXPECT_EQ(description.numa_nodes(), 1);
  EXPECT_EQ(description.host_bytes(), kGiB);
  EXPECT_EQ(description.granularity(), 64 * kKiB);
  EXPECT_EQ(description.multicast_granularity(), 64 * kKiB) << "follows granularity where it is not declared";
  EXPECT_EQ(description.seed(), 7u);
  EXPECT_STREQ(description.Value("nccl"), "2.19.3");
}

TEST(EmulatorDescription, TheLastOfTwoDeclarationsCounts) {
  EXPECT_EQ(Description::Parse("devices=2,devices=3").value().devices(), 3);
}

TEST(EmulatorDescription, HasMemoryInWholeUnitsOfTheGranularity) {
  EXPECT_EQ(Description::Parse("memory=5MiB").value().device_bytes(), 4 * kMiB);
}

std::vector<int> Seen(const char* visible) {
  const Description description = Description::Parse("devices=6,links=ring,numa_nodes=2", visible).value();
  EXPECT_EQ(description.all_devices(), 6);
  std::vector<int> numbers;
  for (int device = 0; device < description.devices(); ++device) numbers.push_back(description.NumberOf(device));
  return numbers;
}

TEST(EmulatorDescription, HidesAndNumbersDevicesAsTheDriverDoes) {
  using Numbers = std::vector<int>;
  EXPECT_EQ(Seen(nullptr), Numbers({0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Seen("4,1"), Numbers({4, 1}));
  EXPECT_EQ(Seen(" 2 , 0 "), Numbers({2, 0}));
  EXPECT_EQ(Seen("3,9,1"), Numbers({3})) << "what is behind no device is hidden";
  EXPECT_EQ(Seen("GPU-03,GPU-01000000-0000-0000-0000-000000000000"), Numbers({2, 0}));
  for (const char* none : {"", "-1", "x", "2,1,2", "GPU-0", "GPU-09"}) EXPECT_EQ(Seen(none), Numbers()) << none;
}

TEST(EmulatorDescription, KnowsHiddenDevicesByTheirNumber) {
  const Description description = Description::Parse("devices=6,links=ring,numa_nodes=2", "4,1").value();
  EXPECT_EQ(description.DeviceOf(4), 0);
  EXPECT_EQ(description.DeviceOf(1), 1);
  for (const int hidden : {0, 2, 3, 5}) EXPECT_GE(description.DeviceOf(hidden), 2);
  EXPECT_EQ(description.NumaNodeOf(0), 1);
  EXPECT_EQ(description.NumaNodeOf(1), 0);
  EXPECT_FALSE(description.Linked(0, 1));
  EXPECT_TRUE(description.Linked(0, description.DeviceOf(5)));
  EXPECT_TRUE(description.Linked(1, description.DeviceOf(0)));
}

TEST(EmulatorDescription, AnUnknownKeyIsRefusedWithTheKnownOnes) {
  const std::string message = RefusalOf("device=2");
  EXPECT_NE(message.find("\"device=2\""), std::string::npos) << message;
  for (const KnownKey& key : KnownKeys()) EXPECT_NE(message.find(key.name), std::string::npos) << key.name;
  EXPECT_EQ(Description::Parse("").value().Value("device"), nullptr);
}

TEST(EmulatorDescription, AKeyWithoutAValueIsRefused) {
  ExpectRefused("devices", "\"devices\"");
  ExpectRefused("=2", "\"=2\"");
}

TEST(EmulatorDescription, NumbersOutOfRangeAreRefused) {
  ExpectRefused("devices=0", "devices=0 is not a number from 1 to 64");
  ExpectRefused("devices=65", "from 1 to 64");
  ExpectRefused("devices=-1", "devices=-1");
  ExpectRefused("devices=2x", "devices=2x");
  ExpectRefused("devices=", "devices=");
  ExpectRefused("numa_nodes=0", "from 1 to 64");
  ExpectRefused("seed=18446744073709551616", "seed=");
}

TEST(EmulatorDescription, ReleasesThatAreNoneAreRefused) {
  EXPECT_STREQ(Description::Parse("nccl=2.30").value().Value("nccl"), "2.30");
  for (const char* text : {"2.x", "2", "", "2.28.9.1", "2.28x", "2.-1", "2.300"}) {
    ExpectRefused(std::string("nccl=") + text, "is not a release like 2.28.9");
  }
}

TEST(EmulatorDescription, SizesThatAreNoneAreRefused) {
  ExpectRefused("memory=much", "memory=much is not a size");
  ExpectRefused("host_memory=1XiB", "host_memory=1XiB");
  ExpectRefused("granularity=3MiB", "a power of two of at least 64KiB");
  ExpectRefused("granularity=4KiB", "a power of two of at least 64KiB");
  ExpectRefused("granularity=0", "granularity=0");
  ExpectRefused("multicast_granularity=64KiB", "a power of two, at least granularity");
  ExpectRefused("multicast_granularity=3MiB", "a power of two, at least granularity");
  ExpectRefused("multicast_granularity=big", "a size");
}

TEST(EmulatorDescription, UnknownChoicesAreRefusedWithTheirKey) {
  for (const char* key :
       {"links", "coherent", "fabric", "multicast", "rdma", "windows", "hosts", "races", "report", "ranks"}) {
    ExpectRefused(std::string(key) + "=perhaps", std::string(key) + "=perhaps");
  }
}

TEST(EmulatorDescription, OneRankAloneHasNoData) {
  ExpectRefused("ranks=one", "ranks=one is not possible without kernels=none");
  EXPECT_STREQ(Description::Parse("ranks=one,kernels=none").value().Value("ranks"), "one");
}

TEST(EmulatorDescription, LinksAllNoneOrNeighbours) {
  const Description all = Description::Parse("devices=5").value();
  const Description none = Description::Parse("devices=5,links=none").value();
  const Description ring = Description::Parse("devices=5,links=ring").value();
  EXPECT_TRUE(all.Linked(0, 3));
  EXPECT_FALSE(none.Linked(0, 1));
  EXPECT_TRUE(none.Linked(2, 2)) << "a device reaches itself";
  EXPECT_TRUE(ring.Linked(3, 2));
  EXPECT_TRUE(ring.Linked(4, 0)) << "the ring closes";
  EXPECT_FALSE(ring.Linked(1, 3));
}

TEST(EmulatorDescription, LinksTwoIslands) {
  const Description islands = Description::Parse("devices=8,links=islands").value();
  EXPECT_TRUE(islands.Linked(0, 3));
  EXPECT_TRUE(islands.Linked(7, 4));
  EXPECT_FALSE(islands.Linked(3, 4));
  EXPECT_FALSE(islands.Linked(7, 0));
}

TEST(EmulatorDescription, EveryNamedMachineIsThere) {
  for (const NamedMachine& machine : NamedMachines()) {
    const Result<Description> description = Description::Parse(std::string("machine=") + machine.name);
    ASSERT_TRUE(description.ok()) << description.status().message();
    EXPECT_STREQ(description->Value("machine"), machine.name);
  }
  EXPECT_STREQ(NamedMachines().front().keys, "");
  ExpectRefused("machine=perhaps", "machine=perhaps is not a known machine");
}

TEST(EmulatorDescription, WhatIsDeclaredCountsMoreThanTheMachine) {
  for (const char* text : {"machine=eight,devices=6", "devices=6,machine=eight"}) {
    EXPECT_EQ(Description::Parse(text).value().devices(), 6) << text;
  }
  EXPECT_EQ(Description::Parse("machine=eight,machine=two").value().devices(), 2) << "the last one counts";
}

TEST(EmulatorDescription, CoherentDevicesAreNodesBehindTheCpus) {
  const Description grace = Description::Parse("machine=grace", "1,0").value();
  EXPECT_TRUE(grace.coherent());
  EXPECT_EQ(grace.OwnNumaNodeOf(0), 10);
  EXPECT_EQ(grace.OwnNumaNodeOf(1), 2);
}

TEST(EmulatorDescription, FaultsNameCallSkipResultAndCount) {
  const Description description = Description::Parse("fail=cuMemCreate:3:2+ncclCommInitRank:0:5:7").value();
  ASSERT_EQ(description.faults().size(), 2u);
  EXPECT_EQ(description.faults()[0].call, "cuMemCreate");
  EXPECT_EQ(description.faults()[0].skip, 3);
  EXPECT_EQ(description.faults()[0].result, 2);
  EXPECT_EQ(description.faults()[0].count, 1);
  EXPECT_EQ(description.faults()[1].call, "ncclCommInitRank");
  EXPECT_EQ(description.faults()[1].count, 7);
}

TEST(EmulatorDescription, FaultsThatCannotBeReadAreRefused) {
  for (const char* fault : {"cuMemCreate", "cuMemCreate:1", "cuMemCreate:x:2", "cuMemCreate:1:2:3:4", "a:1:2:y"}) {
    ExpectRefused(std::string("fail=") + fault, "CALL:SKIP:RESULT");
  }
}

// src/emulator/reference.md has a line of its table for every key, with its default.

std::string Reference() {
  std::ifstream file("src/emulator/reference.md");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(EmulatorReference, ListsEveryKeyWithItsDefault) {
  const std::string text = Reference();
  ASSERT_FALSE(text.empty());
  for (const KnownKey& key : KnownKeys()) {
    const std::string value = *key.default_value == '\0' ? "none" : key.default_value;
    const std::string line = "| `" + std::string(key.name) + "` | " + value + " |";
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace commpool::internal::emulator
