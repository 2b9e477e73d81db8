#include "src/emulator/cudart/torch_operations.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>

#include "src/emulator/cudart/torch_compiler.h"

namespace commpool::internal::emulated_cudart {

namespace {

namespace fs = std::filesystem;

constexpr const char* kInstall = "commpoolEmulatedTorchInstall";

// Returns the folder of the package `torch` in this process; empty if PyTorch's CUDA library is not loaded.
fs::path FolderOfTorch() {
  void* const library = dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return {};
  // a function that every version exports
  void* const known = dlsym(library, "_ZN3c104cuda20getCurrentCUDAStreamEa");
  Dl_info place = {};
  const bool found = known != nullptr && dladdr(known, &place) != 0;
  dlclose(library);
  return found ? fs::path(place.dli_fname).parent_path().parent_path() : fs::path();
}

// The text between the quotes after `__version__ = ` of torch/version.py.
std::string VersionOf(const fs::path& torch) {
  std::ifstream file(torch / "version.py");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string key = "__version__ = '";
  const size_t begin = text.find(key);
  if (begin == std::string::npos) return "";
  return text.substr(begin + key.size(), text.find('\'', begin + key.size()) - begin - key.size());
}

// A binary beside this library, for 2.15.0 and 2.15.1 alike.
fs::path Shipped(const std::string& version) {
  Dl_info own = {};
  if (dladdr(reinterpret_cast<const void*>(&TakeOverTorchsOperations), &own) == 0) return {};
  const std::string minor = version.substr(0, version.find('.', version.find('.') + 1));
  const fs::path file = fs::path(own.dli_fname).parent_path() / ("libcommpool_emulator_torch_" + minor + ".so");
  std::error_code ignored;
  return fs::exists(file, ignored) ? file : fs::path();
}

// PyTorch reads this when it is imported. Otherwise it would replace some of its operations by Triton's kernels.
[[gnu::constructor]] void KeepTritonAway() { setenv("TORCH_DISABLE_NATIVE_JIT", "1", /*replace=*/0); }

std::string Install(const fs::path& torch) {
  const std::string version = VersionOf(torch);
  const char* const asked = std::getenv("COMMPOOL_EMULATOR_TORCH");
  fs::path binary = asked != nullptr ? fs::path(asked) : Shipped(version);
  if (binary.empty()) {
    std::string error;
    binary = CompileForTorch(torch, version, &error);
    if (binary.empty()) return error;
  }
  void* const library = dlopen(binary.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
  const auto install = reinterpret_cast<void (*)()>(dlsym(library, kInstall));
  if (install == nullptr) return binary.string() + " has no function " + kInstall;
  install();
  return "";
}

}  // namespace

void TakeOverTorchsOperations() {
  static std::atomic<bool> done = false;
  if (done.load(std::memory_order_acquire)) return;
  static std::recursive_mutex mutex;  // what is installed may call the runtime
  static bool begun = false;
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (begun) return;
  const fs::path torch = FolderOfTorch();
  if (torch.empty()) return;
  begun = true;
  const std::string error = Install(torch);
  if (!error.empty()) {
    std::fprintf(stderr, "commpool emulator: PyTorch's operations do not run here: %s\n", error.c_str());
  }
  done.store(true, std::memory_order_release);
}

}  // namespace commpool::internal::emulated_cudart
