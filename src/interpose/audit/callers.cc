#include "src/interpose/audit/callers.h"

#include <unwind.h>

#include <functional>
#include <string_view>

namespace commpool::audit {

namespace {

constexpr int kFrames = 200;

// How the name of a file begins, and whose it is. Empty: whoever calls it asks through it.
constexpr struct {
  std::string_view file;
  std::string_view library;
} kKnown[] = {
    {"libcuda.so", ""},
    {"libcudart", ""},
    {"libcupti", ""},
    {"libcudadebugger", ""},
    {"libcommpool_interpose", ""},
    {"libffi", ""},
    {"_ctypes.", ""},
    {"libcommpool", "commpool"},
    {"libnccl.so", "NCCL"},
    {"libcublas", "cuBLAS"},
    {"libcudnn", "cuDNN"},
    {"libcusparse", "cuSPARSE"},
    {"libcusolver", "cuSOLVER"},
    {"libcufft", "cuFFT"},
    {"libcurand", "cuRAND"},
    {"libnvshmem", "NVSHMEM"},
    {"libtorch", "torch"},
    {"libc10", "torch"},
    {"librmm", "RMM"},
    {"libnvrtc", "NVRTC"},
};

// How a part of the path tells whose module of Python it is.
constexpr struct {
  std::string_view folder;
  std::string_view library;
} kPackages[] = {{"-packages/commpool/", "commpool"},
                 {"-packages/torch/", "torch"},
                 {"-packages/cupy", "CuPy"},
                 {"-packages/rmm/", "RMM"}};

std::string NameOfFile(const std::string& file) { return file.substr(file.rfind('/') + 1); }

struct Walk {
  LoadedObjects& objects;
  const std::function<bool(const LoadedObject&)>& ends;
  int frames = 0;
};

_Unwind_Reason_Code Look(_Unwind_Context* context, void* argument) {
  Walk& walk = *static_cast<Walk*>(argument);
  if (++walk.frames > kFrames) return _URC_END_OF_STACK;
  // One byte before: the address returned to may be in the next function already.
  const auto address = reinterpret_cast<const char*>(_Unwind_GetIP(context)) - 1;
  const LoadedObject object = walk.objects.At(address);
  return object.end != 0 && walk.ends(object) ? _URC_END_OF_STACK : _URC_NO_REASON;
}

// From the innermost frame outwards, until `ends` says yes.
void WalkStack(LoadedObjects& objects, const std::function<bool(const LoadedObject&)>& ends) {
  Walk walk{objects, ends};
  _Unwind_Backtrace(&Look, &walk);
}

}  // namespace

std::string NameOfLibrary(const std::string& file) {
  if (file.empty()) return "the program";
  const std::string name = NameOfFile(file);
  for (const auto& known : kKnown) {
    if (name.starts_with(known.file)) return std::string(known.library);
  }
  for (const auto& package : kPackages) {
    if (file.find(package.folder) != std::string::npos) return std::string(package.library);
  }
  return name;
}

Caller CallerOf(LoadedObjects& objects) {
  Caller caller;
  WalkStack(objects, [&](const LoadedObject& object) {
    const std::string name = NameOfLibrary(object.file);
    if (!name.empty()) caller = {name, object.file};
    return !name.empty();
  });
  return caller;
}

bool IsWithin(LoadedObjects& objects, std::string_view file) {
  bool within = false;
  WalkStack(objects, [&](const LoadedObject& object) { return within = NameOfFile(object.file).starts_with(file); });
  return within;
}

}  // namespace commpool::audit
