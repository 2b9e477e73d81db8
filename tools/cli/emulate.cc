// commpool emulate: runs a program on the emulator in place of CUDA's driver, CUDA's runtime and NCCL, which the
// program links or opens.
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "src/library/base/environment.h"
#include "src/library/base/try.h"
#include "src/library/driver/shared_library.h"
#include "tools/cli/commands.h"
#include "tools/cli/program_start.h"

namespace commpool::cli {

namespace {

// A library that commpool itself does not use: it lies beside the driver, or in a folder beside the driver's folder.
std::filesystem::path Beside(const std::filesystem::path& cuda, const char* folder_name, const char* name) {
  const std::filesystem::path folder = cuda.parent_path();
  for (const auto& file : {folder / name, folder.parent_path() / folder_name / name}) {
    std::error_code ignored;
    if (std::filesystem::exists(file, ignored)) return file;
  }
  return {};
}

// Preloads the libraries: a program may know a folder of its own for them (RPATH, as PyTorch does), or load them by
// name later. Also puts them on the library path, for programs that it starts without LD_PRELOAD.
void PutInPlace(const std::filesystem::path& cuda, const std::filesystem::path& nccl) {
  std::string folders;
  std::string libraries;
  for (const std::filesystem::path& library :
       {cuda, Beside(cuda, "cudart", "libcudart.so.13"), nccl, Beside(cuda, "nvml", "libnvidia-ml.so.1")}) {
    if (library.empty()) continue;
    const std::string folder = library.parent_path().string();
    const std::string separator = libraries.empty() ? "" : ":";
    libraries += separator + library.string();
    if ((folders + ":").find(folder + ":") == std::string::npos) folders += separator + folder;
  }
  Prepend("LD_LIBRARY_PATH", folders);
  Prepend("LD_PRELOAD", libraries);
  setenv("COMMPOOL_DRIVER", "emulated", 1);
  const bool together = cuda.parent_path() == nccl.parent_path();
  const std::filesystem::path folder = together ? cuda.parent_path() : cuda.parent_path().parent_path();
  setenv("COMMPOOL_EMULATOR_LIBRARIES", folder.c_str(), 1);
}

// Returns only where the program cannot be started.
Status Run(std::vector<std::string> words, const std::string& kernels) {
  if (words.empty()) return internal::InvalidArgument("say which program: commpool emulate -- PROGRAM [ARGUMENT...]");
  const Result<std::string> started = CheckPreload(words, Statics::kRun);
  if (started.status().code() == StatusCode::kNotSupported) return started.status();
  const internal::EmulatorFiles files =
      COMMPOOL_TRY(internal::FindEmulator(internal::Environment::Get().emulator_libraries));
  if (!kernels.empty()) {  // added to what the variable declares
    const char* const declared = std::getenv("COMMPOOL_EMULATOR");
    const std::string before = declared == nullptr || *declared == '\0' ? "" : declared + std::string(",");
    setenv("COMMPOOL_EMULATOR", (before + "kernels=" + kernels).c_str(), 1);
  }
  PutInPlace(std::filesystem::absolute(files.cuda), std::filesystem::absolute(files.nccl));
  // An audit that began before has its functions in front of those that they watch.
  if (std::getenv("COMMPOOL_AUDIT") != nullptr)
    Prepend("LD_PRELOAD", COMMPOOL_TRY(FindPreloaded("audit", "libcommpool_interpose.so")));
  return StartInPlace(std::move(words));
}

}  // namespace

void AddEmulate(Command app) {
  Command command = app.Add("emulate", "Run a program of yours on emulated GPUs: -- PROGRAM ARGUMENT...");
  command.Footer(
      "The program uses CUDA's driver, its runtime (libcudart.so.13) or NCCL, linked or opened at run time: they\n"
      "are the emulator's for it and for what it starts. PyTorch's operations run by its CPU kernels, in the order of\n"
      "their streams; no other kernels do.\n"
      "COMMPOOL_EMULATOR=devices=8,memory=80GiB describes the machine; COMMPOOL_EMULATOR=report=exit says at the end\n"
      "what was left behind. The exit code is the program's.\n"
      "Examples:\n"
      "  commpool emulate -- ./program --of=mine\n"
      "  commpool emulate --kernels none -- python train.py    (its memory, without arithmetic)\n"
      "  mpirun -np 4 commpool emulate -- ./ranks");
  const auto kernels = std::make_shared<std::string>();
  const auto take = [kernels](const std::string& word) {
    if (word != "later" && word != "now" && word != "none") return false;
    *kernels = word;
    return true;
  };
  command.AddWord("--kernels", "later|now|none", "later", take,
                  "When PyTorch's operations run: in the order of their streams, at once, or not at all");
  command.DoWithRest([kernels](const std::vector<std::string>& words) -> Result<int> { return Run(words, *kernels); });
}

}  // namespace commpool::cli
