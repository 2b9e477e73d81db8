#include "src/emulator/cuda/function_names.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>

#include "src/library/base/file_descriptor.h"

namespace commpool::internal::emulator {

namespace {

// Owns a whole file in memory, for FunctionAt. It is empty if the file cannot be read.
class MappedFile {
 public:
  explicit MappedFile(const char* name) {
    const FileDescriptor file(open(name, O_RDONLY | O_CLOEXEC));
    struct stat status = {};
    if (file.get() < 0 || fstat(file.get(), &status) != 0 || status.st_size <= 0) return;
    void* const mapped = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (mapped == MAP_FAILED) return;
    data_ = static_cast<const char*>(mapped);
    bytes_ = static_cast<size_t>(status.st_size);
  }
  ~MappedFile() {
    if (data_ != nullptr) munmap(const_cast<char*>(data_), bytes_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Returns `count` items at an offset; null if they do not fit into the file.
  template <typename Item>
  const Item* At(uint64_t offset, uint64_t count = 1) const {
    const bool held = offset <= bytes_ && count <= (bytes_ - offset) / sizeof(Item) && offset % alignof(Item) == 0;
    return held ? reinterpret_cast<const Item*>(data_ + offset) : nullptr;
  }

 private:
  const char* data_ = nullptr;
  size_t bytes_ = 0;
};

// dladdr gives a program the name that it was started with, which need not be a path.
const char* FileOf(const Dl_info& module) {
  Dl_info program = {};
  const bool found = dladdr(reinterpret_cast<const void*>(getauxval(AT_PHDR)), &program) != 0;
  return found && program.dli_fbase == module.dli_fbase ? "/proc/self/exe" : module.dli_fname;
}

std::string NameIn(const MappedFile& file, const Elf64_Shdr& table, const Elf64_Shdr& names, uint64_t address) {
  const uint64_t count = table.sh_size / sizeof(Elf64_Sym);
  const auto* const symbols = file.At<Elf64_Sym>(table.sh_offset, count);
  const auto* const text = file.At<char>(names.sh_offset, names.sh_size);
  for (uint64_t index = 0; symbols != nullptr && text != nullptr && index < count; ++index) {
    const Elf64_Sym& symbol = symbols[index];
    const bool holds = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && address - symbol.st_value < symbol.st_size;
    if (holds && symbol.st_name < names.sh_size) {
      return {text + symbol.st_name, strnlen(text + symbol.st_name, names.sh_size - symbol.st_name)};
    }
  }
  return {};
}

}  // namespace

std::string FunctionAt(uintptr_t address, const Dl_info& module) {
  if (module.dli_sname != nullptr) return module.dli_sname;
  const char* const name = FileOf(module);
  if (name == nullptr) return {};
  const MappedFile file(name);
  const auto* const header = file.At<Elf64_Ehdr>(0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return {};
  const auto* const sections = file.At<Elf64_Shdr>(header->e_shoff, header->e_shnum);
  if (sections == nullptr) return {};
  const uint64_t value = header->e_type == ET_EXEC ? address : address - reinterpret_cast<uintptr_t>(module.dli_fbase);
  for (size_t index = 0; index < header->e_shnum; ++index) {
    const Elf64_Shdr& table = sections[index];
    if (table.sh_type != SHT_SYMTAB || table.sh_link >= header->e_shnum) continue;
    return NameIn(file, table, sections[table.sh_link], value);
  }
  return {};
}

}  // namespace commpool::internal::emulator
