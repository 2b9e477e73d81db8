// commpool's library, opened by its file at the first allocation: a process that asks for none, as a shell on the way
// to the program, has nothing of it. Any thread.
#pragma once

#include <string>

#include "commpool/commpool.h"

namespace commpool::run {

struct PoolLibrary {
  decltype(&commpool_pools_create) pools_create = nullptr;
  decltype(&commpool_pool_destroy) pool_destroy = nullptr;
  decltype(&commpool_pool_allocate) pool_allocate = nullptr;
  decltype(&commpool_free) free = nullptr;
  decltype(&commpool_block_of) block_of = nullptr;
  decltype(&commpool_pool_statistics) pool_statistics = nullptr;
  decltype(&commpool_release_idle) release_idle = nullptr;
  decltype(&commpool_last_error) last_error = nullptr;
  std::string why_missing;  // then all members above are null

  // The one that the process has loaded, else the one of this installation.
  static const PoolLibrary& Get();
  // The one that the process has loaded; null without one, or where it is of another version.
  static const PoolLibrary* Loaded();
};

}  // namespace commpool::run
