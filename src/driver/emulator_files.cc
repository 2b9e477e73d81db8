#include "src/driver/emulator_files.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

namespace commpool::internal {

namespace {

using Path = std::filesystem::path;

constexpr const char* kBazelFolder = "src/emulator";  // of the libraries, below a root of runfiles or of bazel-bin

std::optional<EmulatorFiles> FindIn(const Path& folder) {
  std::error_code ignored;
  const EmulatorFiles layouts[] = {
      {(folder / "libcuda.so.1").string(), (folder / "libnccl.so.2").string()},
      {(folder / "cuda" / "libcuda.so.1").string(), (folder / "nccl" / "libnccl.so.2").string()}};
  for (const EmulatorFiles& files : layouts) {
    if (std::filesystem::exists(files.cuda, ignored) && std::filesystem::exists(files.nccl, ignored)) return files;
  }
  return std::nullopt;
}

// Folders in the order of the search, each once.
class FolderList {
 public:
  void Add(const Path& folder) {
    const std::string text = folder.lexically_normal().string();
    if (std::find(folders_.begin(), folders_.end(), text) == folders_.end()) folders_.push_back(text);
  }

  // Around a program or library: in an install tree (lib/commpool/emulator), beside it or one up, or in the tree that
  // Bazel built it in.
  void AddAround(const Path& file) {
    if (file.empty()) return;
    const Path folder = file.parent_path();
    Add(folder / "commpool" / "emulator");
    Add(folder / ".." / "lib" / "commpool" / "emulator");
    Add(folder / "emulator");
    Add(folder / ".." / "emulator");
    Add(Path(file.string() + ".runfiles") / "commpool" / kBazelFolder);
    for (Path root = folder; root != root.root_path(); root = root.parent_path()) {
      if (root.filename() == "bin" || root.filename() == "commpool") Add(root / kBazelFolder);
    }
  }

  std::vector<std::string> Take() { return std::move(folders_); }

 private:
  std::vector<std::string> folders_;
};

}  // namespace

Result<EmulatorFiles> FindEmulator(const std::string& folder) {
  const std::vector<std::string> folders = folder.empty() ? EmulatorFolders() : std::vector<std::string>{folder};
  std::string tried;
  for (const std::string& candidate : folders) {
    if (std::optional<EmulatorFiles> files = FindIn(candidate)) return *files;
    tried += (tried.empty() ? "" : ", ") + candidate;
  }
  return Status(StatusCode::kNotFound, "the emulator's libcuda.so.1 and libnccl.so.2 were not found (tried " + tried +
                                           "): COMMPOOL_EMULATOR_LIBRARIES names the folder that holds both");
}

std::vector<std::string> EmulatorFolders() {
  std::error_code ignored;
  FolderList folders;
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&EmulatorFolders), &self) != 0 && self.dli_fname != nullptr) {
    folders.AddAround(std::filesystem::absolute(self.dli_fname, ignored));
    folders.AddAround(std::filesystem::canonical(self.dli_fname, ignored));
  }
  folders.AddAround(std::filesystem::read_symlink("/proc/self/exe", ignored));
  folders.Add(std::filesystem::current_path(ignored) / kBazelFolder);  // Bazel starts tests in the root of runfiles
  return folders.Take();
}

}  // namespace commpool::internal
