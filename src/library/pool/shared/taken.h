// Taken: something taken from an owner (bytes of an account, an entry of a table). The destructor returns it, unless it
// is kept. Move-only.
#pragma once

#include <utility>

namespace commpool::internal {

// AddressTable::Entry and Room are such. It lives in the frame of a growth, so every way out of a half-made growth
// gives back what was taken. The owner outlives it. One thread.
template <typename Owner, typename What, void (Owner::*give_back)(What), void (Owner::*kept)() = nullptr>
class Taken {
 public:
  Taken() = default;
  Taken(Owner& owner, What what) : owner_(&owner), what_(what) {}  // REQUIRES: just taken
  Taken(Taken&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)), what_(other.what_) {}
  ~Taken() {
    if (owner_ != nullptr) (owner_->*give_back)(what_);
  }

  // From now on somebody else returns it. Call it at the last step, once nothing can fail any more.
  void Keep() {
    if constexpr (kept != nullptr) {
      if (owner_ != nullptr) (owner_->*kept)();
    }
    owner_ = nullptr;
  }

 private:
  Owner* owner_ = nullptr;
  What what_ = {};
};

}  // namespace commpool::internal
