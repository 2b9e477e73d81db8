// DomainNames: the names of all domains that live. A tool that looks domains up by name would take two pools of one
// name for one, so each domain has a name of its own.
//
// Any thread.
#ifndef COMMPOOL_SRC_LIBRARY_NVTX_DOMAIN_NAMES_H_
#define COMMPOOL_SRC_LIBRARY_NVTX_DOMAIN_NAMES_H_

#include <set>
#include <string>
#include <tuple>

#include "src/library/base/mutex.h"

namespace commpool::internal::nvtx {

// A runtime has one, and it outlives the domains.
class DomainNames {
 public:
  using Name = std::set<std::string>::const_iterator;

  // The pool's name, or, where a live domain has that, the first of "NAME #2", "NAME #3", ... that none has.
  Name Take(const std::string& pool) {
    MutexLock lock(mutex_);
    auto [name, is_free] = names_.insert(pool);
    for (int number = 2; !is_free; ++number) {
      std::tie(name, is_free) = names_.insert(pool + " #" + std::to_string(number));
    }
    return name;
  }
  void Return(Name name) {
    MutexLock lock(mutex_);
    names_.erase(name);
  }

 private:
  Mutex mutex_{LockRank::kLeaf};
  std::set<std::string> names_ COMMPOOL_GUARDED_BY(mutex_);
};

// A domain's name, as long as the object lives.
class DomainName {
 public:
  DomainName(const std::string& pool, DomainNames& names) : names_(names), name_(names.Take(pool)) {}
  ~DomainName() { names_.Return(name_); }
  DomainName(const DomainName&) = delete;
  DomainName& operator=(const DomainName&) = delete;

  const std::string& text() const { return *name_; }

 private:
  DomainNames& names_;
  const DomainNames::Name name_;
};

}  // namespace commpool::internal::nvtx

#endif  // COMMPOOL_SRC_LIBRARY_NVTX_DOMAIN_NAMES_H_
