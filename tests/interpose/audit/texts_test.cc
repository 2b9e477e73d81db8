// What an audit reads and writes: names of libraries, settings, Python's frames, tables.
#include <gtest/gtest.h>

#include "src/interpose/audit/callers.h"
#include "src/interpose/audit/report.h"
#include "src/interpose/audit/settings.h"

namespace commpool::audit {
namespace {

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

ReportData SomeData() {
  ReportData data;
  data.reason = "step \"1\"";
  data.how_seen = "by a preload";
  Row row;
  row.made = 3;
  row.bytes_now = 6 << 20;
  data.rows[{"NCCL", What::kMemory, 0}] = row;
  DeviceSum sum;
  sum.attributed = 6 << 20;
  sum.used = 8 << 20;
  data.devices.push_back(sum);
  return data;
}

TEST(Report, TheRestIsARowOfItsOwn) {
  const std::string table = TableOf(SomeData());
  EXPECT_NE(table.find("8 MiB more in use than at the start, 6 MiB attributed (75.0 %)"), std::string::npos) << table;
  const size_t rest = table.find("not attributed");
  ASSERT_NE(rest, std::string::npos) << table;
  EXPECT_NE(table.find(" 2 MiB ", rest), std::string::npos) << table;
}

TEST(Report, SizesFromAGibibyteOnAreNamedInThose) {
  ReportData data = SomeData();
  data.rows.begin()->second.bytes_now = 1536 << 20;
  data.devices[0].used = -(int64_t{3} << 30);
  const std::string table = TableOf(data);
  EXPECT_NE(table.find(" 1.5 GiB "), std::string::npos) << table;
  EXPECT_NE(table.find("device 0: -3 GiB more in use than at the start, 6 MiB"), std::string::npos) << table;
}

TEST(Report, JsonQuotesWhatNeedsIt) {
  const std::string line = JsonOf(SomeData());
  EXPECT_NE(line.find(R"("reason":"step \"1\"")"), std::string::npos) << line;
  EXPECT_NE(line.find(R"("not_attributed":2097152)"), std::string::npos) << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(Report, WhatTheDriverHoldsForPoolsAndGraphsAreItsRows) {
  ReportData data = SomeData();
  EXPECT_EQ(TableOf(data).find("the driver"), std::string::npos);
  data.devices[0].pools = 3 << 20;
  data.devices[0].graphs = 5 << 20;
  const std::string table = TableOf(data);
  EXPECT_NE(table.find("memory pools"), std::string::npos) << table;
  EXPECT_NE(table.find("graphs' memory"), std::string::npos) << table;
  const std::string line = JsonOf(data);
  EXPECT_NE(line.find(R"("in_driver_pools":3145728,"in_graphs":5242880,)"), std::string::npos) << line;
}

TEST(Report, WhatTheDriverDoesNotTellIsSaid) {
  ReportData data = SomeData();
  data.devices[0].used.reset();
  EXPECT_NE(TableOf(data).find("the driver does not tell"), std::string::npos);
  EXPECT_NE(JsonOf(data).find(R"("used":null)"), std::string::npos);
}

}  // namespace
}  // namespace commpool::audit
