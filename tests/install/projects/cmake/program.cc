// A pool, a scope and a routed block through the C++17 headers; prints the pool's statistics.
#include <cstdio>
#include <exception>

#include "commpool/pool.h"
#include "commpool/runtime.h"
#include "commpool/scope.h"

int main() try {
  commpool::PoolOptions options;
  options.limit_bytes = commpool::MiB(64);
  commpool::Pool pool = commpool::Pool::create(options).value();
  commpool::Buffer buffer;
  {
    commpool::PoolScope scope(pool);
    buffer = commpool::allocate(commpool::MiB(4), nullptr, 0).value();
  }
  const auto statistics = pool.stats().value();
  std::printf("C++: %d MiB in use on %s\n", static_cast<int>(statistics.allocated_bytes.current >> 20),
              commpool::driver_description().c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
