#include "src/library/driver/loader.h"

#include <utility>

#include "src/library/base/environment.h"
#include "src/library/base/interface.h"
#include "src/library/base/log.h"
#include "src/library/base/try.h"
#include "src/library/driver/shared_library.h"

namespace commpool::internal {

namespace {

constexpr const char* kDriverFile = "libcuda.so.1";
constexpr const char* kNcclFile = "libnccl.so.2";

// Such as "CUDA driver 13.0, 4 devices, NCCL 2.28.9".
std::string Describe(const Driver& driver, int devices) {
  int version = 0;
  driver.cuda.cuDriverGetVersion(&version);
  const std::string kind = driver.kind == DriverChoice::kEmulated ? "emulated CUDA driver " : "CUDA driver ";
  const std::string nccl = driver.nccl.available() ? "NCCL " + FormatNcclVersion(driver.nccl.version) : "no NCCL";
  return kind + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) + ", " +
         std::to_string(devices) + (devices == 1 ? " device, " : " devices, ") + nccl;
}

std::string NameOf(const Driver& driver, CUresult result) {
  const char* name = nullptr;
  driver.cuda.cuGetErrorName(result, &name);
  return name == nullptr ? "CUDA error " + std::to_string(result) : name + (" (" + std::to_string(result) + ")");
}

// Calls cuInit, and requires at least one device.
Result<std::shared_ptr<const Driver>> Initialise(std::shared_ptr<Driver> driver) {
  const std::string hint = driver->kind == DriverChoice::kEmulated
                               ? "does CUDA_VISIBLE_DEVICES hide every device that COMMPOOL_EMULATOR declares?"
                               : "is a GPU visible (nvidia-smi, CUDA_VISIBLE_DEVICES)? COMMPOOL_DRIVER=emulated runs "
                                 "without one";
  const CUresult result = driver->cuda.cuInit(0);
  if (result != CUDA_SUCCESS) return NotFound("cuInit failed: ", NameOf(*driver, result), ": ", hint);
  int devices = 0;
  const CUresult counted = driver->cuda.cuDeviceGetCount(&devices);
  if (counted != CUDA_SUCCESS || devices == 0) {
    const std::string reason = counted == CUDA_SUCCESS ? "" : " (" + NameOf(*driver, counted) + ")";
    return NotFound("the CUDA driver finds no device", reason, ": ", hint);
  }
  driver->description = Describe(*driver, devices);
  return std::shared_ptr<const Driver>(std::move(driver));
}

NcclLibrary OpenRealNccl(const std::string& file) {
  // Take the NCCL that the program has loaded: its communicators belong to that library.
  Result<SharedLibrary> library = file.empty() ? SharedLibrary::FindLoaded(kNcclFile) : SharedLibrary::Open(file);
  if (file.empty() && !library.ok()) library = SharedLibrary::Open(kNcclFile);
  if (library.ok()) return ResolveNccl(*library);
  NcclLibrary none;
  none.why_missing = library.status().message() + "; COMMPOOL_NCCL names the file of libnccl.so.2";
  return none;
}

Result<std::shared_ptr<const Driver>> LoadReal(const LoaderOptions& options) {
  const std::string hint = ": install it, or run the program without a GPU: commpool emulate -- PROGRAM";
  Result<SharedLibrary> library = SharedLibrary::Open(kDriverFile);
  if (!library.ok()) return NotFound("there is no CUDA driver here (", library.status().message(), ")", hint);
  // The emulator has the same file name, and may be loaded already or lie on the library path.
  if (library->Symbol(kEmulatorNow) != nullptr) {
    return NotFound("there is no CUDA driver here (", library->file(), " is commpool's emulator and was not asked for)",
                    hint);
  }
  auto driver = std::make_shared<Driver>();
  driver->kind = DriverChoice::kCuda;
  driver->cuda = COMMPOOL_TRY(ResolveCuda(*library));
  driver->nccl = OpenRealNccl(options.nccl_file);
  return Initialise(std::move(driver));
}

Result<std::shared_ptr<const Driver>> LoadEmulator(const LoaderOptions& options) {
  // The search covers folders in which the user who started the process may have put a file.
  if (!Environment::Trusted()) {
    return NotSupported(
        "a process with more rights than who started it (setuid) opens no emulator: it takes the real driver");
  }
  const EmulatorFiles files = COMMPOOL_TRY(FindEmulator(options.emulator_folder));
  // Open it with shared symbols: the emulated NCCL must find these, even if a real driver without a device was opened
  // before.
  const SharedLibrary library = COMMPOOL_TRY(SharedLibrary::Open(files.cuda, RTLD_GLOBAL));
  if (library.Symbol(kEmulatorNow) == nullptr) return NotFound(library.file(), " is not commpool's emulator");
  auto driver = std::make_shared<Driver>();
  driver->kind = DriverChoice::kEmulated;
  driver->cuda = COMMPOOL_TRY(ResolveCuda(library));
  driver->extension = [library](const char* name) { return library.Symbol(name); };
  const SharedLibrary nccl = COMMPOOL_TRY(SharedLibrary::Open(files.nccl));
  driver->nccl = ResolveNccl(nccl);
  return Initialise(std::move(driver));
}

Result<std::shared_ptr<const Driver>> LoadEither(const LoaderOptions& options) {
  Result<std::shared_ptr<const Driver>> real = LoadReal(options);
  if (real.ok()) return real;
  const std::string why = real.status().message();
  Result<std::shared_ptr<const Driver>> emulated = LoadEmulator(options);
  if (!emulated.ok()) return NotFound(why, "; nor the emulator: ", emulated.status().message());
  auto driver = std::make_shared<Driver>(**emulated);
  driver->why_emulated = why;
  return std::shared_ptr<const Driver>(std::move(driver));
}

}  // namespace

Result<DriverChoice> ParseDriverChoice(const std::string& text) {
  if (text == "cuda") return DriverChoice::kCuda;
  if (text == "emulated") return DriverChoice::kEmulated;
  if (text == "auto") return DriverChoice::kAuto;
  return InvalidArgument("COMMPOOL_DRIVER is \"", text, "\": it may be cuda, emulated or auto");
}

Result<LoaderOptions> LoaderOptionsFromEnvironment(DriverChoice fallback) {
  const Environment& environment = Environment::Get();
  // Check the level now: nothing reads it before the first line of the log.
  COMMPOOL_TRY(ParseLogLevel(environment.log_level));
  COMMPOOL_TRY(CheckInterface(environment.interface));
  LoaderOptions options{fallback, environment.emulator_libraries, environment.nccl};
  if (!environment.driver.empty()) options.choice = COMMPOOL_TRY(ParseDriverChoice(environment.driver));
  return options;
}

Result<std::shared_ptr<const Driver>> LoadDriver(const LoaderOptions& options) {
  if (options.choice == DriverChoice::kCuda) return LoadReal(options);
  return options.choice == DriverChoice::kEmulated ? LoadEmulator(options) : LoadEither(options);
}

}  // namespace commpool::internal
