// Which libraries the loader opens, and what it resolves of them.
#include "src/library/driver/loader.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>

#include "src/library/driver/shared_library.h"
#include "src/library/driver/tables.h"
#include "tests/base/expect_status.h"

namespace commpool::internal {
namespace {

// A library that is certainly there, and has nothing to do with CUDA.
SharedLibrary ForeignLibrary() { return SharedLibrary::Open("libc.so.6").value(); }

TEST(SharedLibrary, TellsItsFileAndSymbols) {
  const SharedLibrary library = ForeignLibrary();
  EXPECT_NE(library.file().find("/libc.so.6"), std::string::npos) << library.file();
  EXPECT_NE(library.Symbol("malloc"), nullptr);
  EXPECT_EQ(library.Symbol("cuInit"), nullptr);
}

TEST(SharedLibrary, IsFoundWhereItIsLoaded) {
  EXPECT_TRUE(SharedLibrary::FindLoaded("libc.so.6").ok());
  EXPECT_EQ(SharedLibrary::FindLoaded("libnowhere.so.1").status().code(), StatusCode::kNotFound);
}

TEST(SharedLibrary, ThatIsMissingIsNamed) {
  ExpectFailure(SharedLibrary::Open("libnowhere.so.1").status(), StatusCode::kNotFound, "libnowhere.so.1");
}

TEST(Resolve, ALibraryWithoutEntryPointsIsNoDriver) {
  ExpectFailure(ResolveCuda(ForeignLibrary()).status(), StatusCode::kNotSupported, "cuGetProcAddress_v2");
}

TEST(Resolve, ALibraryWithoutAVersionIsNoNccl) {
  const NcclLibrary nccl = ResolveNccl(ForeignLibrary());
  EXPECT_FALSE(nccl.available());
  EXPECT_NE(nccl.why_missing.find("ncclGetVersion"), std::string::npos) << nccl.why_missing;
  EXPECT_NE(nccl.WhyNoWindows().find("there is none"), std::string::npos) << nccl.WhyNoWindows();
}

TEST(NcclLibrary, FormatsOldAndNewVersionCodes) {
  EXPECT_EQ(FormatNcclVersion(22809), "2.28.9");
  EXPECT_EQ(FormatNcclVersion(23003), "2.30.3");
  EXPECT_EQ(FormatNcclVersion(2708), "2.7.8");
}

Status Load(DriverChoice choice, const std::string& emulator_folder = "") {
  return LoadDriver({choice, emulator_folder, ""}).status();
}

bool HasRealDriver() {
  const std::string why_not = Load(DriverChoice::kCuda, "/nowhere").message();
  return why_not.find("there is no CUDA driver here") == std::string::npos;
}

// In a new process, because the environment is read once.
class LoaderDeathTest : public ::testing::Test {
 protected:
  LoaderDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static void ExpectOptions(const char* variable, const char* value, const std::string& found) {
    const auto tell = [&] {
      setenv(variable, value, 1);
      const Result<LoaderOptions> options = LoaderOptionsFromEnvironment(DriverChoice::kAuto);
      const bool is_cuda = options.ok() && options->choice == DriverChoice::kCuda;
      std::cerr << (options.ok() ? options->nccl_file : options.status().message()) << (is_cuda ? ", cuda" : "");
      std::exit(3);
    };
    EXPECT_EXIT(tell(), ::testing::ExitedWithCode(3), found);
  }
};

TEST_F(LoaderDeathTest, AnUnknownChoiceInTheEnvironmentIsNamed) {
  ExpectOptions("COMMPOOL_DRIVER", "emulator", "COMMPOOL_DRIVER is \"emulator\": it may be cuda, emulated or auto");
}

TEST_F(LoaderDeathTest, AnUnknownLogLevelInTheEnvironmentIsNamed) {
  ExpectOptions("COMMPOOL_LOG", "foo", "COMMPOOL_LOG is \"foo\": it may be error, warning, info or debug");
}

TEST_F(LoaderDeathTest, TheEnvironmentOverridesTheFallback) {
  setenv("COMMPOOL_NCCL", "/opt/libnccl.so.2", 1);
  ExpectOptions("COMMPOOL_DRIVER", "cuda", "/opt/libnccl.so.2, cuda");
  unsetenv("COMMPOOL_NCCL");
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
  ExpectFailure(status, StatusCode::kNotFound, "libcuda.so.1");
  ExpectFailure(status, StatusCode::kNotFound, "commpool emulate -- PROGRAM");
}

TEST(Loader, AMissingEmulatorIsAClearError) {
  const Status status = Load(DriverChoice::kEmulated, "/nowhere/at/all");
  ExpectFailure(status, StatusCode::kNotFound, "/nowhere/at/all");
  ExpectFailure(status, StatusCode::kNotFound, "COMMPOOL_EMULATOR_LIBRARIES");
}

TEST(Loader, NamesBothReasonsWhereThereIsNeitherDriverNorEmulator) {
  if (HasRealDriver()) GTEST_SKIP() << "this machine has a CUDA driver";
  const Status status = Load(DriverChoice::kAuto, "/nowhere/at/all");
  ExpectFailure(status, StatusCode::kNotFound, "there is no CUDA driver here");
  ExpectFailure(status, StatusCode::kNotFound, "/nowhere/at/all");
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
  ExpectFailure(Load(DriverChoice::kEmulated, folder_.string()), StatusCode::kNotFound, folder_ / "libcuda.so.1");
}

TEST_F(ForeignFolder, WithAnotherLibraryIsRefused) {
  const std::filesystem::path nccl = std::filesystem::absolute(FindEmulator("").value().nccl);
  for (const char* file : {"libcuda.so.1", "libnccl.so.2"}) std::filesystem::create_symlink(nccl, folder_ / file);
  ExpectFailure(Load(DriverChoice::kEmulated, folder_.string()), StatusCode::kNotFound, "is not commpool's emulator");
}

TEST_F(ForeignFolder, WithOneLibraryAloneIsNoEmulator) {
  std::filesystem::create_symlink(std::filesystem::absolute(FindEmulator("").value().cuda), folder_ / "libcuda.so.1");
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
std::shared_ptr<const Driver> Loaded(DriverChoice choice) { return LoadDriver({choice, "", ""}).value(); }

TEST(LoaderOfTheEmulator, FillsBothTables) {
  const std::shared_ptr<const Driver> driver = Loaded(DriverChoice::kEmulated);
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
  const std::shared_ptr<const Driver> first = Loaded(DriverChoice::kEmulated);
  EXPECT_EQ(first->cuda.cuMemCreate, Loaded(DriverChoice::kEmulated)->cuda.cuMemCreate);
}

TEST(LoaderOfTheEmulator, IsNotTakenForTheRealDriver) {
  const std::shared_ptr<const Driver> emulated = Loaded(DriverChoice::kEmulated);
  Result<std::shared_ptr<const Driver>> real = LoadDriver({DriverChoice::kCuda, "", ""});
  EXPECT_TRUE(!real.ok() || (*real)->cuda.cuMemCreate != emulated->cuda.cuMemCreate);
}

TEST(LoaderOfTheEmulator, IsTakenByAutoWhereThereIsNoDriver) {
  const std::shared_ptr<const Driver> driver = Loaded(DriverChoice::kAuto);
  EXPECT_EQ(driver->kind == DriverChoice::kEmulated, !driver->why_emulated.empty());
}

}  // namespace
}  // namespace commpool::internal
