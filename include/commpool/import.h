// Import: the pool of another process of the same user and machine, which a ticket opens.
//
//   the owner                                                   another process
//   std::string ticket = pool.share(table.data()).value();      Import import = Import::open(ticket).value();
//   begin_update(table.data()).or_throw();                      ImportedBlock seen = import.block(ticket).value();
//   ... write on `stream` ...                                   import.begin_read(seen).or_throw();
//   end_update(table.data(), stream).or_throw();                ... read on `stream` ...
//                                                               import.end_read(seen, stream).or_throw();
//
// Header-only, over share.h, which documents each call: errors, order, what a loss of the owner means. C++17.
#ifndef COMMPOOL_IMPORT_H_
#define COMMPOOL_IMPORT_H_

#include <cstdint>
#include <string>
#include <utility>

#include "commpool/buffer.h"
#include "commpool/share.h"
#include "commpool/status.h"

namespace commpool {
inline namespace v1 {

enum class Addresses { kAny = COMMPOOL_ADDRESSES_ANY, kSame = COMMPOOL_ADDRESSES_SAME };

// Units and defaults: commpool_import_options.
struct ImportOptions {
  int device = COMMPOOL_CURRENT_DEVICE;
  Addresses addresses = Addresses::kAny;
  std::uint64_t deadline_ms = 60000;
};

// A block where it is in this process. Its import holds it.
struct ImportedBlock {
  void* data = nullptr;
  std::uint64_t bytes = 0;
};

// The owner's writes to a block that it has shared.
inline Status begin_update(const void* block) { return detail::FromC(commpool_update_begin(block)); }
inline Status end_update(const void* block, Stream stream) { return detail::FromC(commpool_update_end(block, stream)); }

// Owns an import, and closes it in the end. Its methods may be called by several threads, close() and moves may not.
// Its destructor may not run within a capture: a close is refused there, and the import would stay as long as the
// process. close() says so, and may be called again.
class Import {
 public:
  static Result<Import> open(const std::string& ticket, const ImportOptions& options = {}) {
    commpool_import_options c_options;
    commpool_import_options_init(&c_options);
    c_options.device = options.device;
    c_options.addresses = static_cast<commpool_addresses>(options.addresses);
    c_options.deadline_ms = options.deadline_ms;
    commpool_import import = 0;
    Status status = detail::FromC(commpool_import_open(ticket.c_str(), &c_options, &import));
    if (!status.ok()) return status;
    return Import(import);
  }

  Import(Import&& other) noexcept : import_(std::exchange(other.import_, 0)) {}
  Import& operator=(Import&& other) noexcept {
    std::swap(import_, other.import_);
    return *this;
  }
  ~Import() {
    if (import_ != 0) commpool_import_close(import_);
  }

  commpool_import handle() const { return import_; }

  Result<ImportedBlock> block(const std::string& ticket) {
    ImportedBlock block;
    Status status = detail::FromC(commpool_import_block(import_, ticket.c_str(), &block.data, &block.bytes));
    if (!status.ok()) return status;
    return block;
  }
  Result<void*> address(const void* theirs) {
    void* ours = nullptr;
    Status status = detail::FromC(commpool_import_address(import_, theirs, &ours));
    if (!status.ok()) return status;
    return ours;
  }
  Status begin_read(const ImportedBlock& block) { return detail::FromC(commpool_read_begin(import_, block.data)); }
  Status end_read(const ImportedBlock& block, Stream stream) {
    return detail::FromC(commpool_read_end(import_, block.data, stream));
  }
  Status release(const ImportedBlock& block, Stream stream) {
    return detail::FromC(commpool_import_release(import_, block.data, stream));
  }
  Status close() {
    Status status = detail::FromC(commpool_import_close(import_));
    if (status.ok()) import_ = 0;
    return status;
  }

 private:
  explicit Import(commpool_import import) : import_(import) {}

  commpool_import import_ = 0;
};

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_IMPORT_H_
