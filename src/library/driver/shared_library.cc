#include "src/library/driver/shared_library.h"

#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace commpool::internal {

namespace {

// The file behind a handle; the system may have searched for `name`.
std::string FileOf(void* handle, const std::string& name) {
  const link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name[0] == '\0') return name;
  return map->l_name;
}

constexpr const char* kBazelFolder = "/src/emulator";  // where the libraries are below a root of runfiles or bazel-bin

// Paths are strings here: std::filesystem would add 40 KB to the library.

bool Exists(const std::string& file) { return access(file.c_str(), F_OK) == 0; }

std::optional<EmulatorFiles> FindIn(const std::string& folder) {
  const EmulatorFiles layouts[] = {{folder + "/libcuda.so.1", folder + "/libnccl.so.2"},
                                   {folder + "/cuda/libcuda.so.1", folder + "/nccl/libnccl.so.2"}};
  for (const EmulatorFiles& files : layouts) {
    if (Exists(files.cuda) && Exists(files.nccl)) return files;
  }
  return std::nullopt;
}

std::string_view Parent(std::string_view path) { return path.substr(0, std::min(path.rfind('/'), path.size())); }

// Makes a path absolute, without empty parts, `.` and `..`.
std::string Normalised(std::string_view path) {
  std::string normal;
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(part.size() + 1, path.size()));
    if (part == "..") {
      normal.resize(Parent(normal).size());
    } else if (!part.empty() && part != ".") {
      normal.append("/").append(part);
    }
  }
  return normal;
}

std::string Resolved(const char* path) {
  std::array<char, PATH_MAX> file;
  return realpath(path, file.data()) == nullptr ? "" : file.data();
}

void AddOnce(const std::string& folder, std::vector<std::string>& folders) {
  const std::string text = Normalised(folder);
  if (std::find(folders.begin(), folders.end(), text) == folders.end()) folders.push_back(text);
}

// Adds the folders around a program or library: in an install tree (lib/commpool/emulator), beside it, one folder up,
// or in the tree where Bazel built it.
void AddAround(const std::string& file, std::vector<std::string>& folders) {
  if (file.empty()) return;
  const std::string folder(Parent(file));
  for (const char* place : {"/commpool/emulator", "/../lib/commpool/emulator", "/emulator", "/../emulator"}) {
    AddOnce(folder + place, folders);
  }
  AddOnce(file + ".runfiles/commpool" + kBazelFolder, folders);
  for (std::string_view root = folder; !root.empty(); root = Parent(root)) {
    if (root.ends_with("/bin") || root.ends_with("/commpool")) AddOnce(std::string(root) + kBazelFolder, folders);
  }
}

}  // namespace

Result<SharedLibrary> SharedLibrary::Open(const std::string& file, int scope) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | scope);
  if (handle == nullptr) {
    const char* error = dlerror();
    return Status(StatusCode::kNotFound, error == nullptr ? file + " cannot be opened" : std::string(error));
  }
  return SharedLibrary(handle, FileOf(handle, file));
}

Result<SharedLibrary> SharedLibrary::FindLoaded(const std::string& name) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return Status(StatusCode::kNotFound, name + " is not loaded");
  return SharedLibrary(handle, FileOf(handle, name));
}

void* SharedLibrary::Symbol(const char* name) const { return dlsym(handle_, name); }

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
  std::vector<std::string> folders;
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&EmulatorFolders), &self) != 0 && self.dli_fname != nullptr) {
    const std::string file = self.dli_fname;
    AddAround(file.starts_with("/") ? file : Resolved(".") + "/" + file, folders);
    AddAround(Resolved(self.dli_fname), folders);
  }
  AddAround(Resolved("/proc/self/exe"), folders);
  AddOnce(Resolved(".") + kBazelFolder, folders);  // Bazel starts tests in the root of runfiles
  return folders;
}

}  // namespace commpool::internal
