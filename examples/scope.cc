// Scopes route allocations into pools, even from deep inside other people's code. C++17.
#include "commpool/scope.h"

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "commpool/pool.h"
#include "examples/support/device.h"

using commpool::Buffer;
using commpool::Filter;
using commpool::MiB;
using commpool::Pool;
using commpool::PoolScope;

// Other people's code: it knows no pool, and you cannot change it.
namespace library {
Buffer MakeActivations(CUstream stream) { return commpool::allocate(MiB(1), stream).value(); }
Buffer Layer(CUstream stream) { return MakeActivations(stream); }
std::vector<Buffer> Forward(CUstream stream, int layers) {
  std::vector<Buffer> activations;
  for (int layer = 0; layer < layers; ++layer) activations.push_back(Layer(stream));
  return activations;
}
}  // namespace library

Buffer LayerOnAnotherThread(const examples::Device& device) {
  const auto layer = [&device] {
    device.MakeCurrent();
    return library::Layer(device.stream);
  };
  return std::async(std::launch::async, layer).get();
}

Pool MakePool(const char* name) {
  commpool::PoolOptions options;
  options.name = name;
  return Pool::create(options).value();
}

uint64_t BlocksIn(const Pool& pool) { return pool.stats().value().allocated_blocks.current; }

void Expect(const std::string& what, const Pool& outer, uint64_t in_outer, const Pool& inner, uint64_t in_inner) {
  std::printf("%-52s outer pool %d, inner pool %d\n", what.c_str(), static_cast<int>(BlocksIn(outer)),
              static_cast<int>(BlocksIn(inner)));
  if (BlocksIn(outer) != in_outer || BlocksIn(inner) != in_inner) throw std::runtime_error("routed wrongly: " + what);
}

int main() try {
  examples::Device device(0);
  examples::Device backward(0);  // the same GPU: a second stream
  Pool outer = MakePool("outer");
  Pool inner = MakePool("inner");
  std::printf("%s\nlive blocks in each pool\n", examples::DriverLine().c_str());

  std::vector<Buffer> kept = library::Forward(device.stream, 2);
  Expect("no scope: the device's default pool serves", outer, 0, inner, 0);
  {
    PoolScope scope(outer);
    kept = library::Forward(device.stream, 3);
    Expect("in a scope: three layers", outer, 3, inner, 0);
    {
      PoolScope nested(inner);
      const Buffer one = library::Layer(device.stream);
      Expect("in a scope inside of it: one layer more", outer, 3, inner, 1);
    }
    kept.push_back(library::Layer(device.stream));
    Expect("the inner one ended: the outer one serves again", outer, 4, inner, 0);

    kept.push_back(LayerOnAnotherThread(device));
    Expect("another thread: not of this scope", outer, 4, inner, 0);
  }
  {
    PoolScope scope(inner, {Filter::kStream, backward.stream});
    kept.push_back(LayerOnAnotherThread(backward));
    Expect("a scope of a stream: any thread's, for that stream", outer, 4, inner, 1);
    kept.push_back(library::Layer(device.stream));
    Expect("another stream: not of this scope", outer, 4, inner, 1);
  }
  kept.clear();
  Expect("freed: each block went back to where it came from", outer, 0, inner, 0);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "scope: %s\n", error.what());
  return 1;
}
