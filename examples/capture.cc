// A CUDA graph whose memory is a pool's: captured once, replayed with other inputs. C++17.
#include "commpool/capture.h"

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

#include "commpool/pool.h"
#include "commpool/scope.h"
#include "examples/support/device.h"

using commpool::Buffer;
using commpool::CaptureScope;
using commpool::MiB;
using commpool::Pool;
using commpool::PoolScope;

constexpr uint64_t kBytes = MiB(4);

// Other people's code: it knows no pool and no capture, and allocates where it likes.
namespace library {
void Copy(const Buffer& to, const Buffer& from, CUstream stream) {
  examples::Check(
      cuMemcpyDtoDAsync(examples::AddressOf(to.data()), examples::AddressOf(from.data()), to.bytes(), stream));
}
Buffer Step(const Buffer& input, CUstream stream) {
  Buffer scratch = commpool::allocate(kBytes, stream).value();
  Buffer output = commpool::allocate(kBytes, stream).value();
  Copy(scratch, input, stream);
  Copy(output, scratch, stream);
  return output;  // frees scratch: the next step in the capture may get its memory
}
}  // namespace library

void Fill(const Buffer& buffer, float value, CUstream stream) {
  examples::Upload(std::vector<float>(buffer.bytes() / sizeof(float), value), buffer, stream);
}

void ExpectAll(const Buffer& buffer, float expected, CUstream stream) {
  for (const float value : examples::Download(buffer, stream)) {
    if (value != expected) throw std::runtime_error("a buffer does not hold what the graph wrote");
  }
}

// The result of a capture: a graph to launch, and its output.
struct Captured {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  Buffer output;
};

Captured Capture(const Pool& pool, const Buffer& input, CUstream stream) {
  Captured captured;
  examples::Check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  {
    CaptureScope capture(pool, stream);  // the pool serves this capture from memory that belongs to the graph
    PoolScope scope(pool);
    captured.output = library::Step(library::Step(input, stream), stream);
  }
  examples::Check(cuStreamEndCapture(stream, &captured.graph));
  examples::Check(cuGraphInstantiate(&captured.executable, captured.graph, 0));
  return captured;
}

int ReservedMiB(const Pool& pool) { return static_cast<int>(pool.stats().value().reserved_bytes.current >> 20); }

int main() try {
  examples::Device device(0);
  commpool::PoolOptions options;
  options.name = "decoder";
  Pool pool = Pool::create(options).value();
  std::printf("%s\n", examples::DriverLine().c_str());
  pool.reserve(MiB(32)).or_throw();  // else it grows in the capture
  Buffer input = pool.allocate(kBytes, device.stream).value();
  Captured captured = Capture(pool, input, device.stream);
  for (int replay = 1; replay <= 3; ++replay) {
    Fill(input, static_cast<float>(replay), device.stream);
    examples::Check(cuGraphLaunch(captured.executable, device.stream));
    const Buffer other = pool.allocate(kBytes, device.stream).value();  // never the graph's memory
    examples::Check(cuStreamSynchronize(device.stream));
    Fill(other, -1, device.stream);
    ExpectAll(captured.output, static_cast<float>(replay), device.stream);
  }
  pool.trim().value();
  std::printf("captured once, replayed 3 times: every output is right; the graph lives: %d MiB reserved\n",
              ReservedMiB(pool));

  examples::Check(cuGraphExecDestroy(captured.executable));
  examples::Check(cuGraphDestroy(captured.graph));
  captured.output = Buffer();
  input = Buffer();
  pool.trim().value();  // nobody uses the graph's memory any more
  std::printf("the graph is gone: %d MiB reserved\n", ReservedMiB(pool));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "capture: %s\n", error.what());
  return 1;
}
