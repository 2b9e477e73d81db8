#include "src/library/driver/loader.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "src/library/driver/shared_library.h"

namespace commpool::internal {
namespace {

bool Contains(const Status& status, const std::string& fragment) {
  return status.message().find(fragment) != std::string::npos;
}

Status Load(DriverChoice choice, const std::string& emulator_folder = "") {
  return LoadDriver({choice, emulator_folder, ""}).status();
}

bool HasRealDriver() { return !Contains(Load(DriverChoice::kCuda, "/nowhere"), "there is no CUDA driver here"); }

// In a new process, because the environment is read once.
TEST(LoaderDeathTest, AnUnknownChoiceInTheEnvironmentIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("COMMPOOL_DRIVER", "emulator", 1);
        std::fprintf(stderr, "%s", LoaderOptionsFromEnvironment(DriverChoice::kAuto).status().message().c_str());
        std::exit(3);
      },
      ::testing::ExitedWithCode(3), "COMMPOOL_DRIVER is \"emulator\": it may be cuda, emulated or auto");
}

TEST(LoaderDeathTest, AnUnknownLogLevelInTheEnvironmentIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("COMMPOOL_LOG", "foo", 1);
        std::fprintf(stderr, "%s", LoaderOptionsFromEnvironment(DriverChoice::kAuto).status().message().c_str());
        std::exit(3);
      },
      ::testing::ExitedWithCode(3), "COMMPOOL_LOG is \"foo\": it may be error, warning, info or debug");
}

TEST(LoaderDeathTest, TheEnvironmentOverridesTheFallback) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("COMMPOOL_DRIVER", "cuda", 1);
        setenv("COMMPOOL_NCCL", "/opt/libnccl.so.2", 1);
        const LoaderOptions options = LoaderOptionsFromEnvironment(DriverChoice::kAuto).value();
        std::exit(options.choice == DriverChoice::kCuda && options.nccl_file == "/opt/libnccl.so.2" ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Loader, KnowsThreeChoices) {
  EXPECT_EQ(ParseDriverChoice("cuda").value(), DriverChoice::kCuda);
  EXPECT_EQ(ParseDriverChoice("emulated").value(), DriverChoice::kEmulated);
  EXPECT_EQ(ParseDriverChoice("auto").value(), DriverChoice::kAuto);
  for (const char* text : {"", "CUDA", "real"}) {
    EXPECT_EQ(ParseDriverChoice(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(Loader, AMissingDriverIsAClearError) {
  if (HasRealDriver()) GTEST_SKIP() << "this machine has a CUDA driver";
  const Status status = Load(DriverChoice::kCuda);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_TRUE(Contains(status, "libcuda.so.1")) << status.message();
  EXPECT_TRUE(Contains(status, "commpool emulate -- PROGRAM")) << status.message();
}

TEST(Loader, AMissingEmulatorIsAClearError) {
  const Status status = Load(DriverChoice::kEmulated, "/nowhere/at/all");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_TRUE(Contains(status, "/nowhere/at/all")) << status.message();
  EXPECT_TRUE(Contains(status, "COMMPOOL_EMULATOR_LIBRARIES")) << status.message();
}

TEST(Loader, NamesBothReasonsWhereThereIsNeitherDriverNorEmulator) {
  if (HasRealDriver()) GTEST_SKIP() << "this machine has a CUDA driver";
  const Status status = Load(DriverChoice::kAuto, "/nowhere/at/all");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_TRUE(Contains(status, "there is no CUDA driver here")) << status.message();
  EXPECT_TRUE(Contains(status, "/nowhere/at/all")) << status.message();
}

class ForeignFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "foreign_emulator";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(ForeignFolder, WithFilesThatAreNoLibrariesIsRefused) {
  for (const char* file : {"libcuda.so.1", "libnccl.so.2"}) std::ofstream(folder_ / file) << "no library";
  const Status status = Load(DriverChoice::kEmulated, folder_.string());
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_TRUE(Contains(status, (folder_ / "libcuda.so.1").string())) << status.message();
}

TEST_F(ForeignFolder, WithAnotherLibraryIsRefused) {
  const EmulatorFiles files = FindEmulator("").value();
  std::filesystem::create_symlink(std::filesystem::absolute(files.nccl), folder_ / "libcuda.so.1");
  std::filesystem::create_symlink(std::filesystem::absolute(files.nccl), folder_ / "libnccl.so.2");
  const Status status = Load(DriverChoice::kEmulated, folder_.string());
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_TRUE(Contains(status, "is not commpool's emulator")) << status.message();
}

TEST_F(ForeignFolder, WithOneLibraryAloneIsNoEmulator) {
  const EmulatorFiles files = FindEmulator("").value();
  std::filesystem::create_symlink(std::filesystem::absolute(files.cuda), folder_ / "libcuda.so.1");
  EXPECT_EQ(FindEmulator(folder_.string()).status().code(), StatusCode::kNotFound);
}

TEST(EmulatorFolders, AreWholePathsOfWhichNoneComesTwice) {
  const std::vector<std::string> folders = EmulatorFolders();
  EXPECT_FALSE(folders.empty());
  EXPECT_EQ(std::set<std::string>(folders.begin(), folders.end()).size(), folders.size());
  for (const std::filesystem::path folder : folders) {
    EXPECT_TRUE(folder.is_absolute()) << folder;
    EXPECT_EQ(folder, folder.lexically_normal());
  }
}

// From now on the emulator is loaded.
TEST(LoaderOfTheEmulator, FillsBothTables) {
  const std::shared_ptr<const Driver> driver = LoadDriver({DriverChoice::kEmulated, "", ""}).value();
  EXPECT_EQ(driver->kind, DriverChoice::kEmulated);
#define COMMPOOL_CUDA(name, version) EXPECT_NE(driver->cuda.name, nullptr) << #name;
#include "src/library/driver/cuda_functions.inc"
#undef COMMPOOL_CUDA
  // Hides functions newer than the NCCL that runs.
#define COMMPOOL_NCCL(name, since) EXPECT_EQ(driver->nccl.name != nullptr, since <= driver->nccl.version) << #name;
#include "src/library/driver/nccl_functions.inc"
#undef COMMPOOL_NCCL
  EXPECT_NE(driver->description.find("emulated CUDA driver "), std::string::npos) << driver->description;
  EXPECT_NE(driver->extension(kEmulatorNow), nullptr);
  EXPECT_EQ(driver->extension("commpoolEmulatorHasNoSuchFunction"), nullptr);
}

TEST(LoaderOfTheEmulator, OpensItTwiceAsOne) {
  const std::shared_ptr<const Driver> first = LoadDriver({DriverChoice::kEmulated, "", ""}).value();
  const std::shared_ptr<const Driver> second = LoadDriver({DriverChoice::kEmulated, "", ""}).value();
  EXPECT_EQ(first->cuda.cuMemCreate, second->cuda.cuMemCreate);
}

TEST(LoaderOfTheEmulator, IsNotTakenForTheRealDriver) {
  const std::shared_ptr<const Driver> emulated = LoadDriver({DriverChoice::kEmulated, "", ""}).value();
  Result<std::shared_ptr<const Driver>> real = LoadDriver({DriverChoice::kCuda, "", ""});
  EXPECT_TRUE(!real.ok() || (*real)->cuda.cuMemCreate != emulated->cuda.cuMemCreate);
}

TEST(LoaderOfTheEmulator, IsTakenByAutoWhereThereIsNoDriver) {
  const std::shared_ptr<const Driver> driver = LoadDriver({DriverChoice::kAuto, "", ""}).value();
  EXPECT_EQ(driver->kind == DriverChoice::kEmulated, !driver->why_emulated.empty());
}

}  // namespace
}  // namespace commpool::internal
