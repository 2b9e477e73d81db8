// The program and the libraries of this process, by the addresses of their code. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace commpool::audit {

struct LoadedObject {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  std::string file;  // empty: the program itself
};

class LoadedObjects {
 public:
  // The object whose code holds the address; one without addresses where there is none, as for generated code.
  // dladdr would say it too, but looks through the names of a library: milliseconds in the large ones.
  LoadedObject At(const void* address);

 private:
  using List = std::vector<LoadedObject>;  // by address

  std::shared_ptr<const List> Current();

  std::mutex mutex_;  // of what is below
  std::shared_ptr<const List> list_;
  uint64_t changes_ = 0;  // how often the loader had changed its list
};

}  // namespace commpool::audit
