// commpool emulate: runs a program that links or opens CUDA's driver and NCCL on the emulator in their place.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "src/base/environment.h"
#include "src/driver/emulator_files.h"
#include "tools/cli/command.h"

namespace commpool::cli {

namespace {

// In front of what a variable holds already.
void Prepend(const char* variable, const std::string& text) {
  const char* const before = std::getenv(variable);
  const bool empty = before == nullptr || *before == '\0';
  setenv(variable, (empty ? text : text + ":" + before).c_str(), 1);
}

// Preloaded, so that a program which knows a folder of its own for them (RPATH), or loads them by name later, takes
// these two; on the library path for programs that it starts and that drop LD_PRELOAD.
void PutInPlace(const internal::EmulatorFiles& files) {
  const std::filesystem::path cuda = files.cuda;
  const std::filesystem::path nccl = files.nccl;
  const bool together = cuda.parent_path() == nccl.parent_path();
  Prepend("LD_LIBRARY_PATH", cuda.parent_path().string() + (together ? "" : ":" + nccl.parent_path().string()));
  Prepend("LD_PRELOAD", cuda.string() + ":" + nccl.string());
  setenv("COMMPOOL_DRIVER", "emulated", 1);
  const std::filesystem::path folder = together ? cuda.parent_path() : cuda.parent_path().parent_path();
  setenv("COMMPOOL_EMULATOR_LIBRARIES", folder.c_str(), 1);
}

// Returns only where the program cannot be started.
int Run(std::vector<std::string> words) {
  if (words.empty()) {
    std::cerr << "commpool emulate: say which program: commpool emulate -- PROGRAM [ARGUMENT...]\n";
    return kFailed;
  }
  const Result<internal::EmulatorFiles> files = internal::FindEmulator(internal::Environment::Get().emulator_libraries);
  if (!files.ok()) {
    std::cerr << "commpool emulate: " << files.status().message() << '\n';
    return kFailed;
  }
  PutInPlace({std::filesystem::absolute(files->cuda), std::filesystem::absolute(files->nccl)});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  std::cerr << "commpool emulate: cannot start " << words.front() << ": " << std::strerror(errno) << '\n';
  return kFailed;
}

}  // namespace

void AddEmulate(Command app) {
  Command command = app.Add("emulate", "Run a program of yours on emulated GPUs: -- PROGRAM ARGUMENT...");
  command.Footer(
      "The program uses CUDA's driver API and NCCL, linked or opened at run time; both are the emulator's for it and\n"
      "for what it starts. libcudart is not emulated. COMMPOOL_EMULATOR=devices=8,memory=80GiB describes the machine;\n"
      "COMMPOOL_EMULATOR=report=exit says at the end what was left behind. The exit code is the program's.\n"
      "Examples:\n"
      "  commpool emulate -- ./program --of=mine\n"
      "  mpirun -np 4 commpool emulate -- ./ranks");
  command.DoWithRest(Run);
}

}  // namespace commpool::cli
