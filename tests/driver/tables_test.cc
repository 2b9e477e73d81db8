#include "src/library/driver/tables.h"

#include <gtest/gtest.h>

#include "src/library/driver/shared_library.h"
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

}  // namespace
}  // namespace commpool::internal
