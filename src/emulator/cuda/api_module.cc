// Modules of kernels: the emulator runs no code that is made for a GPU.
#include <elf.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "src/emulator/cuda/api.h"

using namespace commpool::internal::emulator;  // NOLINT: this file is C on the outside

namespace {

// The kernels of a compiled image, whose code lies in sections named .text.KERNEL. Text (PTX) names none.
std::string KernelsOf(const void* image) {
  const auto* const bytes = static_cast<const char*>(image);
  if (image == nullptr || std::strncmp(bytes, ELFMAG, SELFMAG) != 0) return "";
  const auto* const header = static_cast<const Elf64_Ehdr*>(image);
  const auto* const sections = reinterpret_cast<const Elf64_Shdr*>(bytes + header->e_shoff);
  const char* const names = bytes + sections[header->e_shstrndx].sh_offset;
  std::string kernels = "the kernel";
  for (size_t index = 0; index < header->e_shnum; ++index) {
    const std::string_view name = names + sections[index].sh_name;
    if (name.starts_with(".text.")) kernels += " " + std::string(name.substr(6));
  }
  return kernels;
}

// Says in one sentence what cannot run; an empty text says nothing.
CUresult Refuse(const char* call, const std::string& kernels) {
  return Call(call, Needs::kCurrentContext, [&](Machine&, auto&) {
    if (!kernels.empty()) std::fprintf(stderr, "commpool emulator: there is no GPU to run %s\n", kernels.c_str());
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  });
}

}  // namespace

// torch.compile's kernels.
CUresult cuModuleLoad(CUmodule*, const char* file) {
  const std::string name = file == nullptr ? "no file" : file;
  return Refuse("cuModuleLoad", "the kernels of " + name + ": compile with backend=\"eager\"");
}

// A program's own kernels, by Triton for one.
CUresult cuModuleLoadData(CUmodule*, const void* image) { return Refuse("cuModuleLoadData", KernelsOf(image)); }

CUresult cuModuleLoadDataEx(CUmodule*, const void* image, unsigned, CUjit_option*, void**) {
  return Refuse("cuModuleLoadDataEx", KernelsOf(image));
}
