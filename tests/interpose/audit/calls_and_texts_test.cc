// What an audit reads and writes: calls as CUPTI packs them, names of libraries, settings, Python's frames, tables.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "src/interpose/audit/callers.h"
#include "src/interpose/audit/cupti_abi.h"
#include "src/interpose/audit/packed_call.h"
#include "src/interpose/audit/report.h"
#include "src/interpose/audit/seen_set.h"
#include "src/interpose/audit/settings.h"
#if __has_include(<cupti_callbacks.h>)
#include <cupti_callbacks.h>
#endif

namespace commpool::audit {
namespace {

TEST(PackedCall, ReadsMembersWhereTheCompilerPutsThem) {
  const struct {
    unsigned first;
    const char* second;
    unsigned char third;
    size_t fourth;
    CUipcMemHandle fifth;
    unsigned sixth;
  } members = {1, "two", 3, 4, {{5}}, 6};
  StructReader reader(&members);
  EXPECT_EQ(reader.Next<unsigned>(), 1u);
  EXPECT_STREQ(reader.Next<const char*>(), "two");
  EXPECT_EQ(reader.Next<unsigned char>(), 3);
  EXPECT_EQ(reader.Next<size_t>(), 4u);
  EXPECT_EQ(reader.Next<CUipcMemHandle>().reserved[0], 5);
  EXPECT_EQ(reader.Next<unsigned>(), 6u);
}

TEST(CuptiAbi, IsThatOfTheHeader) {
#if __has_include(<cupti_callbacks.h>)
  EXPECT_EQ(sizeof(cupti::CallbackData), sizeof(CUpti_CallbackData));
  EXPECT_EQ(offsetof(cupti::CallbackData, parameters), offsetof(CUpti_CallbackData, functionParams));
  EXPECT_EQ(offsetof(cupti::CallbackData, result), offsetof(CUpti_CallbackData, functionReturnValue));
  EXPECT_EQ(offsetof(cupti::CallbackData, correlation), offsetof(CUpti_CallbackData, correlationData));
  EXPECT_EQ(cupti::kEnter, static_cast<int>(CUPTI_API_ENTER));
  EXPECT_EQ(cupti::kExit, static_cast<int>(CUPTI_API_EXIT));
  EXPECT_EQ(cupti::kDriverDomain, static_cast<int>(CUPTI_CB_DOMAIN_DRIVER_API));
  EXPECT_EQ(cupti::kMultipleSubscribers, static_cast<int>(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED));
#else
  GTEST_SKIP() << "there is no cupti_callbacks.h";
#endif
}

TEST(SeenSet, HasWhatWasAdded) {
  const auto set = std::make_unique<SeenSet>();
  const int one = 0;
  const int other = 0;
  EXPECT_FALSE(set->Has(&one));
  set->Add(&one);
  EXPECT_TRUE(set->Has(&one));
  EXPECT_FALSE(set->Has(&other));
}

TEST(SeenSet, EverythingCountsAsSeenOnceThereIsNoRoom) {
  const auto set = std::make_unique<SeenSet>();
  std::vector<char> places(1 << 18);
  for (const char& place : places) set->Add(&place);
  for (const char& place : places) ASSERT_TRUE(set->Has(&place));
}

TEST(Callers, LibrariesHaveTheNamesThatPeopleUse) {
  EXPECT_EQ(NameOfLibrary("/usr/lib/libnccl.so.2.28.9"), "NCCL");
  EXPECT_EQ(NameOfLibrary("/venv/nvidia/cublas/lib/libcublasLt.so.13"), "cuBLAS");
  EXPECT_EQ(NameOfLibrary("/venv/torch/lib/libc10_cuda.so"), "torch");
  EXPECT_EQ(NameOfLibrary("/opt/lib/libcommpool.so.0"), "commpool");
  EXPECT_EQ(NameOfLibrary("/venv/site-packages/cupy_backends/cuda/api/driver.cpython-311-x86_64-linux-gnu.so"), "CuPy");
  EXPECT_EQ(NameOfLibrary("/opt/libsolver.so.3"), "libsolver.so.3");
  EXPECT_EQ(NameOfLibrary(""), "the program");
}

TEST(Callers, DriverAndRuntimeAskForOthers) {
  for (const char* file : {"/lib/libcuda.so.1", "/lib/libcuda.so.580.1", "/lib/libcudart.so.13", "/lib/libcupti.so.13",
                           "/opt/lib/commpool/libcommpool_interpose.so"}) {
    EXPECT_EQ(NameOfLibrary(file), "") << file;
  }
}

TEST(Callers, TheProgramItselfIsFound) {
  LoadedObjects objects;
  EXPECT_EQ(NameOfCaller(objects), "the program");
}

TEST(Settings, AreWhatTheVariableSays) {
  const Settings settings = Settings::FromText("process=12,signal=10,by=preload,record=/a/b.jsonl,limit=4096,cupti=/c");
  EXPECT_TRUE(settings.asked);
  EXPECT_FALSE(settings.by_cupti);
  EXPECT_FALSE(settings.python_stacks);
  EXPECT_EQ(settings.started_by, 12);
  EXPECT_EQ(settings.signal, 10);
  EXPECT_EQ(settings.record, "/a/b.jsonl");
  EXPECT_EQ(settings.cupti, "/c");
  EXPECT_EQ(settings.limit_bytes, 4096u);
  EXPECT_TRUE(Settings::FromText("python-stacks=yes").python_stacks);
}

TEST(Settings, WithoutTheVariableNothingIsAudited) { EXPECT_FALSE(Settings::FromText(nullptr).asked); }

void ExpectHas(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
}

ReportData SomeData() {
  ReportData data;
  data.reason = "step \"1\"";
  data.how_seen = "by a preload";
  data.rows[{"NCCL", What::kMemory, 0}] = {.made = 3, .bytes_now = 6 << 20};
  data.devices.push_back({.attributed = 6 << 20, .used = 8 << 20});
  return data;
}

TEST(Report, TheRestIsARowOfItsOwn) {
  const std::string table = TableOf(SomeData());
  ExpectHas(table, "8 MiB more in use than at the start, 6 MiB attributed (75.0 %)");
  ExpectHas(table, "not attributed");
  ExpectHas(table.substr(table.find("not attributed")), " 2 MiB ");
}

TEST(Report, SizesFromAGibibyteOnAreNamedInThose) {
  ReportData data = SomeData();
  data.rows.begin()->second.bytes_now = 1536 << 20;
  data.devices[0].used = -(int64_t{3} << 30);
  const std::string table = TableOf(data);
  ExpectHas(table, " 1.5 GiB ");
  ExpectHas(table, "device 0: -3 GiB more in use than at the start, 6 MiB");
}

TEST(Report, JsonQuotesWhatNeedsIt) {
  const std::string line = JsonOf(SomeData());
  ExpectHas(line, R"("reason":"step \"1\"")");
  ExpectHas(line, R"("not_attributed":2097152)");
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(Report, WhatTheDriverHoldsForPoolsAndGraphsAreItsRows) {
  ReportData data = SomeData();
  EXPECT_EQ(TableOf(data).find("the driver"), std::string::npos);
  data.devices[0].pools = 3 << 20;
  data.devices[0].graphs = 5 << 20;
  const std::string table = TableOf(data);
  ExpectHas(table, "memory pools");
  ExpectHas(table, "graphs' memory");
  ExpectHas(JsonOf(data), R"("in_driver_pools":3145728,"in_graphs":5242880,)");
}

TEST(Report, WhatTheDriverDoesNotTellIsSaid) {
  ReportData data = SomeData();
  data.devices[0].used.reset();
  ExpectHas(TableOf(data), "the driver does not tell");
  ExpectHas(JsonOf(data), R"("used":null)");
}

}  // namespace
}  // namespace commpool::audit
