// Domain: what one pool says to a tool that listens to NVTX: its ranges.
//
// Any thread. Where no tool listens each call is one look at a pointer. The tool decides by NVTX_INJECTION64_PATH
// whether it listens, before the first domain is made. It never calls the library.
#ifndef COMMPOOL_SRC_NVTX_DOMAIN_H_
#define COMMPOOL_SRC_NVTX_DOMAIN_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace commpool::internal::nvtx {

// Made with a pool. Whatever ends after the pool, such as a scope's range, shares it.
class Domain {
 public:
  // The tool shows "commpool: POOL".
  explicit Domain(const std::string& pool);
  ~Domain();
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  bool heard() const { return handle_ != nullptr; }

  // A range of this thread: ranges end in the reverse order.
  void Push(std::string_view text) const;
  void Pop() const;
  // A range that another thread may end. Returns its number.
  uint64_t Start(std::string_view text) const;
  void End(uint64_t range) const;

 private:
  void* const handle_;
};

// A range of this thread, as long as the object lives.
class Range {
 public:
  Range(const Domain& domain, std::string_view text) : domain_(domain) { domain_.Push(text); }
  ~Range() { domain_.Pop(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  const Domain& domain_;
};

}  // namespace commpool::internal::nvtx

#endif  // COMMPOOL_SRC_NVTX_DOMAIN_H_
