// Makes no CUDA call before commpool's: no context is current, and every stream is null. Uses commpool alone.
#include <cstdio>
#include <exception>

#include "commpool/buffer.h"
#include "commpool/pool.h"

int main() try {
  commpool::Pool pool = commpool::Pool::create(commpool::PoolOptions()).value();
  commpool::Buffer of_pool = pool.allocate(commpool::MiB(1), nullptr).value();
  of_pool.record_stream(nullptr).or_throw();
  commpool::Buffer named = commpool::allocate(commpool::MiB(1), nullptr, /*device=*/0).value();
  std::printf("device 0: %d\n", of_pool.data() != nullptr && named.data() != nullptr);
  const commpool::Result<commpool::Buffer> unnamed = commpool::allocate(commpool::MiB(1), nullptr);
  std::printf("no device: %s\n", unnamed.status().message().c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
