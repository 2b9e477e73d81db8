#include "src/emulator/cudart/torch_compiler.h"

#include <fcntl.h>
#include <pwd.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "src/emulator/cudart/torch_operations.h"

extern char** environ;

namespace commpool::internal::emulated_cudart {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSource = "src/emulator/torch/all.cc";
constexpr size_t kToldBytes = 1500;  // of the compiler's messages

// -O2 with the flags of the Python package's own binaries (_flags.py).
const std::vector<std::string>& Flags() {
  static const auto* const flags = new std::vector<std::string>{
      "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-omit-frame-pointer", "-w"};
  return *flags;
}

uint64_t HashOf(const std::string& text, uint64_t hash) {
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return hash;
}

std::string DigestOfSources() {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::string& flag : Flags()) hash = HashOf(flag, hash);
  for (size_t index = 0; index < kTorchSourceCount; ++index) {
    hash = HashOf(kTorchSources[index].text, HashOf(kTorchSources[index].path, hash));
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

fs::path CacheFolder() {
  if (const char* const asked = std::getenv("COMMPOOL_CACHE")) return fs::path(asked) / "torch";
  const char* home = std::getenv("HOME");
  const passwd* const user = home == nullptr ? getpwuid(getuid()) : nullptr;
  if (user != nullptr) home = user->pw_dir;
  return fs::path(home == nullptr ? "/tmp" : home) / ".cache/commpool/torch";
}

// Nobody else may put a binary there.
bool MakePrivate(const fs::path& folder, std::string* error) {
  std::error_code failed;
  fs::create_directories(folder.parent_path(), failed);
  mkdir(folder.c_str(), 0700);
  struct stat found = {};
  if (stat(folder.c_str(), &found) != 0) {
    *error = folder.string() + ": " + std::strerror(errno) + "; COMMPOOL_CACHE may name another folder";
    return false;
  }
  if (found.st_uid == geteuid() && (found.st_mode & (S_IWGRP | S_IWOTH)) == 0) return true;
  *error = folder.string() + " is another user's, or others may write to it; COMMPOOL_CACHE may name another folder";
  return false;
}

// Owns a lock between processes. It ends with them.
class FileLock {
 public:
  explicit FileLock(const fs::path& file) : descriptor_(open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
    if (descriptor_ >= 0) flock(descriptor_, LOCK_EX);
  }
  ~FileLock() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_;
};

// Owns a folder that ends with it.
class WorkFolder {
 public:
  explicit WorkFolder(const fs::path& parent) {
    std::string name = (parent / "building-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~WorkFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::vector<std::string> CommandLine(const fs::path& torch, const fs::path& work, const fs::path& made) {
  const char* const compiler = std::getenv("CXX");
  std::vector<std::string> line = {compiler != nullptr && *compiler != '\0' ? compiler : "g++"};
  line.insert(line.end(), Flags().begin(), Flags().end());
  line.push_back("-I" + work.string());
  std::vector<fs::path> folders = {torch / "include", torch / "include/torch/csrc/api/include",
                                   torch.parent_path() / "nvidia/cu13/include"};
  if (const char* const toolkit = std::getenv("CUDA_HOME")) folders.push_back(fs::path(toolkit) / "include");
  folders.push_back("/usr/local/cuda/include");
  folders.push_back(torch.parent_path() / "triton/backends/nvidia/include");
  for (const fs::path& folder : folders) line.push_back("-isystem" + folder.string());
  line.push_back((work / kSource).string());
  line.push_back("-o" + made.string());
  line.push_back("-L" + (torch / "lib").string());
  for (const char* const library : {"-lc10", "-lc10_cuda", "-ltorch_cpu", "-ltorch_cuda"}) line.push_back(library);
  return line;
}

// The compiler must not start with the emulator's libraries.
std::vector<char*> EnvironmentWithoutPreload() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool ours = std::strncmp(*entry, "LD_PRELOAD=", 11) == 0 || std::strncmp(*entry, "LD_LIBRARY_PATH=", 16) == 0;
    if (!ours) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

// Returns the error; empty if the command succeeded. Its messages go to the file `log`.
std::string RunCommand(const std::vector<std::string>& line, const fs::path& log) {
  std::vector<char*> words;
  for (const std::string& word : line) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::vector<char*> environment = EnvironmentWithoutPreload();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, words[0], &actions, nullptr, words.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return "there is no C++ compiler (g++, or what CXX names): " + std::string(std::strerror(failed));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  std::ifstream file(log);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return line[0] + " failed: " + text.substr(0, kToldBytes);
}

bool WriteSources(const fs::path& work) {
  for (size_t index = 0; index < kTorchSourceCount; ++index) {
    const fs::path file = work / kTorchSources[index].path;
    std::error_code failed;
    fs::create_directories(file.parent_path(), failed);
    std::ofstream stream(file);
    stream << kTorchSources[index].text;
    if (!stream.flush()) return false;
  }
  return true;
}

}  // namespace

fs::path CompileForTorch(const fs::path& torch, const std::string& version, std::string* error) {
  const fs::path folder = CacheFolder();
  if (!MakePrivate(folder, error)) return {};
  const fs::path kept = folder / ("operations-" + version + "-" + DigestOfSources() + ".so");
  const FileLock lock(folder / "operations.lock");
  std::error_code ignored;
  if (fs::exists(kept, ignored)) return kept;
  const WorkFolder work(folder);
  if (work.path().empty() || !WriteSources(work.path())) {
    *error = folder.string() + " cannot be written";
    return {};
  }
  std::fprintf(stderr, "commpool emulator: compiling PyTorch %s's operations once, for a minute; %s keeps them\n",
               version.c_str(), folder.c_str());
  const fs::path made = work.path() / "operations.so";
  *error = RunCommand(CommandLine(torch, work.path(), made), work.path() / "log");
  if (!error->empty()) return {};
  std::error_code failed;
  fs::rename(made, kept, failed);
  if (!failed) return kept;
  *error = kept.string() + ": " + failed.message();
  return {};
}

}  // namespace commpool::internal::emulated_cudart
