#include "tools/cli/program_start.h"

#include <elf.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "src/library/base/try.h"
#include "tools/common/process.h"

namespace commpool::cli {

namespace {

namespace files = std::filesystem;

constexpr int kMostInterpreters = 4;  // as many as Linux follows

bool IsProgram(const files::path& file) {
  std::error_code ignored;
  return access(file.c_str(), X_OK) == 0 && !files::is_directory(file, ignored);
}

// Where the shell would look for it.
std::vector<files::path> PlacesOf(const std::string& name) {
  if (name.find('/') != std::string::npos) return {name};
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/local/bin:/bin:/usr/bin" : path);
  std::vector<files::path> places;
  for (std::string folder; std::getline(folders, folder, ':');) {
    places.push_back(files::path(folder.empty() ? "." : folder) / name);
  }
  return places;
}

// Where the shell would find it; empty for nowhere.
files::path FindProgram(const std::string& name) {
  const std::vector<files::path> places = PlacesOf(name);
  const auto found = std::find_if(places.begin(), places.end(), IsProgram);
  return found == places.end() ? files::path() : *found;
}

std::string WhyNotFound(const std::string& name) {
  std::error_code ignored;
  for (const files::path& file : PlacesOf(name)) {
    if (!files::exists(file, ignored)) continue;
    if (!files::is_directory(file, ignored)) return file.string() + " may not be executed (chmod +x makes it so)";
    if (file == name) return "it is a folder";
  }
  return "there is no such program";
}

// Of a script: the program of its first line, with its first argument; empty for other files.
std::vector<std::string> InterpreterOf(const files::path& file) {
  std::ifstream script(file, std::ios::binary);
  std::string line;
  std::getline(script, line);
  if (!line.starts_with("#!")) return {};
  std::istringstream words(line.substr(2));
  std::vector<std::string> interpreter;
  for (std::string word; words >> word;) interpreter.push_back(word);
  return interpreter;
}

// `#!/usr/bin/env -S A=1 python3 -u`: the program behind env's options and settings; empty where none is seen.
std::string BehindEnv(const std::vector<std::string>& words) {
  constexpr std::string_view kSplit = "--split-string=";
  for (size_t place = 1; place < words.size(); ++place) {
    std::string word = words[place];
    std::erase_if(word, [](char letter) { return letter == '"' || letter == '\''; });
    if (word.starts_with(kSplit)) word.erase(0, kSplit.size());
    if (word.starts_with("-S")) word.erase(0, 2);
    if (word == "-u" || word == "-C") ++place;  // its value
    if (!word.empty() && word.front() != '-' && word.find('=') == std::string::npos) return word;
  }
  return {};
}

// Whether running the file gives the process rights that its user has not.
bool GivesRights(const files::path& file) {
  struct stat state = {};
  if (stat(file.c_str(), &state) != 0) return false;
  const bool other_user = (state.st_mode & S_ISUID) != 0 && state.st_uid != geteuid();
  const bool other_group = (state.st_mode & S_ISGID) != 0 && state.st_gid != getegid();
  return other_user || other_group || getxattr(file.c_str(), "security.capability", nullptr, 0) > 0;
}

template <typename Record>
Record ReadAt(std::ifstream& file, uint64_t offset) {
  Record record = {};
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(&record), sizeof(record));
  return record;
}

bool IsElf(const Elf64_Ehdr& header) { return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0; }

// Whether the file is a program that no loader completes: statically linked.
bool IsStatic(const files::path& file) {
  std::ifstream program(file, std::ios::binary);
  const auto header = ReadAt<Elf64_Ehdr>(program, 0);
  if (!program || !IsElf(header)) return false;
  for (uint64_t index = 0; index < header.e_phnum; ++index) {
    const auto part = ReadAt<Elf64_Phdr>(program, header.e_phoff + index * sizeof(Elf64_Phdr));
    if (!program || part.p_type == PT_INTERP) return false;
  }
  return true;
}

std::string ReadSection(std::ifstream& file, const Elf64_Shdr& section) {
  std::string content(section.sh_size, '\0');
  file.seekg(static_cast<std::streamoff>(section.sh_offset));
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  return file ? content : "";
}

// Whether one of the symbols is a function that has this name, and its code is here.
bool HasFunction(const std::string& symbols, const std::string& names, const std::string& function) {
  for (size_t place = 0; place + sizeof(Elf64_Sym) <= symbols.size(); place += sizeof(Elf64_Sym)) {
    Elf64_Sym symbol = {};
    std::memcpy(&symbol, symbols.data() + place, sizeof(symbol));
    const bool here = symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC;
    if (here && symbol.st_name < names.size() && names.c_str() + symbol.st_name == function) return true;
  }
  return false;
}

}  // namespace

void Prepend(const char* variable, const std::string& text) {
  const char* const before = std::getenv(variable);
  const bool empty = before == nullptr || *before == '\0';
  setenv(variable, (empty ? text : text + ":" + before).c_str(), 1);
}

Result<std::string> FindPreloaded(const std::string& bazel_folder, const std::string& name) {
  std::error_code failed;
  const files::path own = files::canonical(kOwnProgram, failed).parent_path();
  std::string tried;
  for (const files::path& file : {own / "../lib/commpool" / name, own / "../../src/interpose" / bazel_folder / name}) {
    if (files::exists(file, failed)) return files::canonical(file).string();
    tried += (tried.empty() ? "" : ", ") + file.lexically_normal().string();
  }
  return Status(StatusCode::kNotFound, name + " is not there; looked for " + tried);
}

Result<std::string> CheckPreload(const std::vector<std::string>& words, Statics statics) {
  std::string name = words.front();
  files::path script;
  for (int depth = 0; depth < kMostInterpreters; ++depth) {
    const files::path file = FindProgram(name);
    if (file.empty() && depth == 0) {
      return Status(StatusCode::kNotFound, "cannot start " + name + ": " + WhyNotFound(name));
    }
    if (file.empty()) return script.string();  // the system says why it starts nothing
    if (GivesRights(file)) {
      return Status(StatusCode::kNotSupported,
                    file.string() +
                        " runs with more rights than its user has (setuid, setgid or capabilities), so the "
                        "system preloads nothing into it: start what it starts, or run as its owner");
    }
    if (statics == Statics::kRefused && IsStatic(file)) {
      return Status(StatusCode::kNotSupported,
                    file.string() + " is linked statically: nothing can be preloaded into it");
    }
    const std::vector<std::string> interpreter = InterpreterOf(file);
    if (interpreter.empty()) return file.string();
    script = file;
    const std::string behind = files::path(interpreter[0]).filename() == "env" ? BehindEnv(interpreter) : "";
    name = behind.empty() ? interpreter[0] : behind;
  }
  return Status(StatusCode::kNotSupported, words.front() + " is a script of a script, without an end");
}

bool Defines(const std::string& file, const std::string& function) {
  std::ifstream program(file, std::ios::binary);
  const auto header = ReadAt<Elf64_Ehdr>(program, 0);
  if (!program || !IsElf(header)) return false;
  const auto section = [&](uint64_t index) {
    return ReadAt<Elf64_Shdr>(program, header.e_shoff + index * sizeof(Elf64_Shdr));
  };
  for (uint64_t index = 0; index < header.e_shnum; ++index) {
    const Elf64_Shdr symbols = section(index);
    if (symbols.sh_type != SHT_SYMTAB && symbols.sh_type != SHT_DYNSYM) continue;
    const std::string names = ReadSection(program, section(symbols.sh_link));
    if (HasFunction(ReadSection(program, symbols), names, function)) return true;
  }
  return false;
}

Status StartInPlace(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  return Status(StatusCode::kInvalidArgument, "cannot start " + words.front() + ": " + std::strerror(errno));
}

}  // namespace commpool::cli
