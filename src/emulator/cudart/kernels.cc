#include "src/emulator/cudart/kernels.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace commpool::internal::emulated_cudart {

namespace {

// Owns the kernels that loaded modules registered, tens of thousands of them. __cudaRegisterFunction fills it, and
// launches look into it.
class Registry {
 public:
  // Nothing destroys it, because modules end in any order.
  static Registry& Get() {
    static auto* const registry = new Registry;
    return *registry;
  }

  void Add(const void* entry, const char* name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    handles_.insert(&kernels_.insert_or_assign(entry, Kernel{name}).first->second);
  }

  const Kernel* Find(const void* entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = kernels_.find(entry);
    if (found != kernels_.end()) return &found->second;
    return handles_.contains(entry) ? static_cast<const Kernel*>(entry) : nullptr;
  }

  const char* Intern(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return texts_.insert(text).first->c_str();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, Kernel> kernels_;  // by host function
  std::unordered_set<const void*> handles_;
  std::set<std::string> texts_;
};

// The name that a reader needs: without parameters, and without what a template's arguments are made of.
std::string Short(std::string name) {
  constexpr size_t kMostLetters = 200;
  const std::string unnamed = "(anonymous namespace)::";
  for (size_t at = name.find(unnamed); at != std::string::npos; at = name.find(unnamed)) name.erase(at, unnamed.size());
  std::string text;
  int depth = 0;
  for (const char letter : name) {
    if (letter == '(' && depth == 0 && !text.empty()) break;
    if (letter == '>') --depth;
    if (depth < 2) text += letter;
    if (letter == '<') ++depth;
  }
  return text.size() <= kMostLetters ? text : text.substr(0, kMostLetters) + "...";
}

const char*& RefusalOfThisThread() {
  thread_local const char* text = nullptr;
  return text;
}

}  // namespace

void RegisterKernel(const void* entry, const char* name) { Registry::Get().Add(entry, name); }

const Kernel* FindKernel(const void* entry) { return Registry::Get().Find(entry); }

std::string Demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

cudaError_t RefuseKernel(const Kernel* kernel) {
  if (kernel == nullptr) return Keep(cudaErrorInvalidDeviceFunction);
  RefusalOfThisThread() = Registry::Get().Intern(
      "no kernel image is available for execution on the device: the emulator runs no code for GPUs, and no operation "
      "of PyTorch's CPU stands for the kernel " +
      Short(Demangled(kernel->name)));
  return Keep(cudaErrorNoKernelImageForDevice);
}

const char* LastRefusal() { return RefusalOfThisThread(); }

}  // namespace commpool::internal::emulated_cudart
