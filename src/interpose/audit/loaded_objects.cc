#include "src/interpose/audit/loaded_objects.h"

#include <link.h>

#include <algorithm>

namespace commpool::audit {

namespace {

int ReadChanges(dl_phdr_info* info, size_t, void* changes) {
  *static_cast<uint64_t*>(changes) = info->dlpi_adds + info->dlpi_subs;
  return 1;  // each object has the same figures
}

int AddCode(dl_phdr_info* info, size_t, void* list) {
  for (int index = 0; index < info->dlpi_phnum; ++index) {
    const ElfW(Phdr)& part = info->dlpi_phdr[index];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    const char* const name = info->dlpi_name == nullptr ? "" : info->dlpi_name;
    static_cast<std::vector<LoadedObject>*>(list)->push_back({begin, begin + part.p_memsz, name});
  }
  return 0;
}

}  // namespace

std::shared_ptr<const LoadedObjects::List> LoadedObjects::Current() {
  uint64_t changes = 0;
  dl_iterate_phdr(&ReadChanges, &changes);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (list_ != nullptr && changes_ == changes) return list_;
  }
  auto list = std::make_shared<List>();  // outside the lock: the loader has one of its own
  dl_iterate_phdr(&AddCode, list.get());
  std::sort(list->begin(), list->end(), [](const auto& one, const auto& other) { return one.begin < other.begin; });
  const std::lock_guard<std::mutex> lock(mutex_);
  list_ = list;
  changes_ = changes;
  return list;
}

LoadedObject LoadedObjects::At(const void* address) {
  const auto list = Current();
  const auto value = reinterpret_cast<uintptr_t>(address);
  const auto after = std::upper_bound(list->begin(), list->end(), value,
                                      [](uintptr_t wanted, const auto& object) { return wanted < object.begin; });
  if (after == list->begin() || value >= std::prev(after)->end) return {};
  return *std::prev(after);
}

}  // namespace commpool::audit
