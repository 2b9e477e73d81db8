// The promises of commpool/mr.h, one case for each argument: `program CASE`. memory_resource_test.py lists the cases,
// and compiles it against CCCL's and RMM's headers.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <string>
#include <vector>

#include "commpool/listing.h"
#include "commpool/mr.h"
#include "commpool/scope.h"

namespace {

using commpool::Pool;
using commpool::PoolOptions;
using commpool::PoolResource;
using commpool::ResourceBacking;
using Any = cuda::mr::any_resource<cuda::mr::device_accessible>;

#define MUST(condition)                                                         \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                             \
    }                                                                           \
  } while (false)

Pool Make(PoolOptions options = {}) { return Pool::create(options).value(); }
std::uint64_t Blocks(const Pool& pool) { return pool.stats().value().allocated_blocks.current; }

cudaStream_t MakeStream() {
  cudaStream_t stream = nullptr;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  return stream;
}

// How many rules the emulator has seen broken; 0 on a GPU.
std::size_t Reports() {
  using Ask = std::size_t (*)(char*, std::size_t);
  const auto ask = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "commpoolEmulatorReports"));
  std::vector<char> text(1 << 16);
  return ask == nullptr ? 0 : ask(text.data(), text.size());
}
bool IsEmulated() { return dlsym(RTLD_DEFAULT, "commpoolEmulatorReports") != nullptr; }

// cudaMalloc memory, as any library's resource could have.
struct Upstream {
  std::size_t* given;
  std::size_t offset = 0;

  void* allocate_sync(std::size_t bytes, std::size_t /*alignment*/) const {
    void* pointer = nullptr;
    if (bytes > (64U << 20) || cudaMalloc(&pointer, bytes + offset) != cudaSuccess) {
      throw std::runtime_error("upstream has no more");
    }
    ++*given;
    return static_cast<char*>(pointer) + offset;
  }
  void deallocate_sync(void* pointer, std::size_t /*bytes*/, std::size_t /*alignment*/) const noexcept {
    --*given;
    cudaFree(static_cast<char*>(pointer) - offset);
  }
  friend bool operator==(const Upstream& left, const Upstream& right) { return left.given == right.given; }
  friend bool operator!=(const Upstream& left, const Upstream& right) { return !(left == right); }
  friend constexpr void get_property(const Upstream&, cuda::mr::device_accessible) noexcept {}
};

void ServesThroughErasedTypes(Pool& pool, const PoolResource& resource, cudaStream_t stream) {
  static_assert(cuda::mr::resource_with<PoolResource, cuda::mr::device_accessible>);
  static_assert(std::is_nothrow_copy_constructible_v<commpool::BadAlloc>);
  Pool other = Make();
  MUST(resource == PoolResource(pool) && resource != PoolResource(other));
  Any any(resource);
  cuda::mr::resource_ref<cuda::mr::device_accessible> reference(any);
  void* const first = any.allocate(stream, 1000, 256);
  void* const second = reference.allocate(stream, 5 << 20, 256);
  MUST(Blocks(pool) == 2 && commpool::block_of(first).value().pool == pool.handle());
  reference.deallocate(stream, second, 5 << 20, 256);
  any.deallocate(stream, first, 1000, 256);
  MUST(Blocks(pool) == 0 &&
       pool.stats().value().cached_bytes > 0);  // freed on its own stream: a thread's cache took it
  MUST(resource.allocate(stream, 0) == nullptr);
  resource.deallocate(stream, nullptr, 0);
}

void OrdersStreams(Pool&, const PoolResource& resource, cudaStream_t one) {
  const cudaStream_t two = MakeStream();
  void* const block = resource.allocate(one, 1 << 20);
  MUST(cudaStreamSynchronize(one) == cudaSuccess);
  MUST(cudaMemsetAsync(block, 1, 1 << 20, two) == cudaSuccess);
  resource.deallocate(two, block, 1 << 20);  // on another stream than its own: `one` must wait for `two`
  void* const again = resource.allocate(one, 1 << 20);
  MUST(cudaMemsetAsync(again, 2, 1 << 20, one) == cudaSuccess);
  MUST(cudaDeviceSynchronize() == cudaSuccess);
  MUST(Reports() == 0);
  resource.deallocate(one, again, 1 << 20);
  // The same with a plain free, which knows only `one`: a race, which the emulator must find.
  void* const bare = resource.allocate(one, 1 << 20);
  MUST(cudaStreamSynchronize(one) == cudaSuccess);
  MUST(cudaMemsetAsync(bare, 1, 1 << 20, two) == cudaSuccess);
  MUST(commpool_free(bare) == COMMPOOL_OK);
  void* const raced = resource.allocate(one, 1 << 20);
  MUST(raced == bare && cudaMemsetAsync(raced, 2, 1 << 20, one) == cudaSuccess);
  MUST(cudaDeviceSynchronize() == cudaSuccess);
  MUST(!IsEmulated() || Reports() > 0);
  resource.deallocate(one, raced, 1 << 20);
}

// allocate_sync waits for what used its memory before, so the block may be written on any stream at once.
void ExpectSettled(const PoolResource& resource, std::size_t bytes) {
  void* const block = resource.allocate_sync(bytes);
  MUST(cudaMemsetAsync(block, 1, bytes, cudaStreamLegacy) == cudaSuccess);
  resource.deallocate(cuda::stream_ref(cudaStreamLegacy), block, bytes);
  void* const again = resource.allocate_sync(bytes);
  MUST(again == block && cudaMemsetAsync(again, 2, bytes, MakeStream()) == cudaSuccess);
  MUST(cudaDeviceSynchronize() == cudaSuccess && Reports() == 0);
  resource.deallocate_sync(again, bytes);
}

void SettlesWhatIsUsedAtOnce(Pool& pool, const PoolResource& resource, cudaStream_t) {
  ExpectSettled(resource, 1 << 20);  // a thread's cache serves it
  MUST(Blocks(pool) == 0);
}

// Memory of the host serves the default stream of the device that is current.
void SettlesMemoryOfEveryDevice(Pool&, const PoolResource&, cudaStream_t) {
  if (!IsEmulated()) return;  // a GPU alone may run this program
  MUST(cudaSetDevice(1) == cudaSuccess);
  Pool pool = Make({.location = commpool::Location::kHostNuma, .peers = {1}, .limit_bytes = commpool::MiB(2)});
  ExpectSettled(PoolResource(pool), 2 << 20);
}

void AlignsAsAsked(Pool& pool, const PoolResource& resource, cudaStream_t stream) {
  for (std::size_t alignment = 1; alignment <= (2U << 20); alignment *= 2) {
    void* const first = resource.allocate(stream, 700, alignment);
    void* const second = resource.allocate(stream, 700, alignment);
    MUST(reinterpret_cast<std::uintptr_t>(first) % alignment == 0);
    MUST(reinterpret_cast<std::uintptr_t>(second) % alignment == 0);
    resource.deallocate(stream, first, 700, alignment);
    resource.deallocate(stream, second, 700, alignment);
    MUST(Blocks(pool) == 0);
  }
}

template <typename Exception>
std::string Thrown(const std::function<void()>& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

void ThrowsWhatTheConceptAsksFor(Pool&, const PoolResource&, cudaStream_t stream) {
  Pool pool = Make({.name = "small", .limit_bytes = commpool::MiB(4)});
  const PoolResource resource(pool);
  const std::string why = Thrown<std::bad_alloc>([&] { resource.allocate(stream, 100 << 20); });
  MUST(why.find("no memory for 100 MiB in pool small") == 0);
  MUST(Thrown<commpool::Error>([&] { resource.allocate(stream, 8, 3); }).find("alignment 3") == 0);
  MUST(Thrown<std::bad_alloc>([&] { resource.allocate_sync(100 << 20); }) == why);
  std::string late;
  {
    Pool gone = Make();
    const PoolResource left(gone);
    void* const block = left.allocate(stream, 512);
    gone = Make();
    late = Thrown<commpool::Error>([&] { left.allocate(stream, 512); });
    left.deallocate(stream, block, 512);  // after its pool's end
    MUST(!commpool::block_of(block).has_value());
  }
  MUST(!late.empty());
}

void KeepsWhatIsNotItsOwn(Pool& pool, const PoolResource& resource, cudaStream_t stream) {
  Pool other = Make();
  void* foreign = nullptr;
  MUST(cudaMalloc(&foreign, 4096) == cudaSuccess);
  resource.deallocate(stream, foreign, 4096);
  MUST(cudaMemset(foreign, 0, 4096) == cudaSuccess && cudaFree(foreign) == cudaSuccess);
  void* const theirs = PoolResource(other).allocate(stream, 4096);
  resource.deallocate(stream, theirs, 4096);
  MUST(Blocks(other) == 1);
  PoolResource(other).deallocate(stream, theirs, 4096);
  PoolResource(other).deallocate(stream, theirs, 4096);  // a second time
  MUST(Blocks(other) == 0 && Blocks(pool) == 0);
}

void FollowsScopes(Pool& pool, const PoolResource&, cudaStream_t stream) {
  const PoolResource resource = PoolResource::of_scopes(0);
  commpool::PoolScope scope(pool);
  void* const block = resource.allocate(stream, 4096);
  MUST(Blocks(pool) == 1);
  resource.deallocate(stream, block, 4096);
  commpool::ThrustScratch scratch(resource, stream);
  char* const bytes = scratch.allocate(4096);
  MUST(Blocks(pool) == 1);
  scratch.deallocate(bytes, 4096);
  MUST(Blocks(pool) == 0);
}

void BacksAPool(Pool&, const PoolResource&, cudaStream_t) {
  std::size_t given = 0;
  {
    ResourceBacking<Upstream> backing(Upstream{&given});
    Pool pool = Make({.backing = commpool::Backing::kUser, .user = backing});
    {
      commpool::Buffer buffer = pool.allocate(1 << 20, nullptr).value();
      MUST(given == 1);
      MUST(!pool.allocate(commpool::MiB(200), nullptr).ok() && backing.last_failure() == "upstream has no more");
    }
    MUST(pool.trim().value() > 0 && given == 0);
  }
  ResourceBacking<Upstream> crooked(Upstream{&given, 256});
  Pool pool = Make({.backing = commpool::Backing::kUser, .user = crooked});
  MUST(!pool.allocate(1 << 20, nullptr).ok() && given == 0);
  MUST(crooked.last_failure().find("512") != std::string::npos);
}

void ServesRmm(Pool& pool, const PoolResource& resource, cudaStream_t stream) {
  rmm::mr::statistics_resource_adaptor statistics{Any(resource)};
  {
    rmm::device_buffer rows(1000, stream, statistics);
    MUST(Blocks(pool) == 1 && statistics.get_bytes_counter().value == 1000);
    MUST(commpool::block_of(rows.data()).value().pool == pool.handle());
    rmm::device_buffer moved(std::move(rows));
    MUST(Blocks(pool) == 1);
  }
  MUST(Blocks(pool) == 0 && statistics.get_bytes_counter().value == 0);
  Pool small = Make({.limit_bytes = commpool::MiB(2)});
  MUST(!Thrown<std::bad_alloc>([&] { rmm::device_buffer(100 << 20, stream, PoolResource(small)); }).empty());
  rmm::mr::set_per_device_resource(rmm::cuda_device_id{0}, Any(resource));
  {
    rmm::device_buffer rows(4096, stream, rmm::mr::get_per_device_resource_ref(rmm::cuda_device_id{0}));
    MUST(Blocks(pool) == 1);
  }
  rmm::mr::reset_per_device_resource(rmm::cuda_device_id{0});
}

// Each has a pool, its resource and a stream.
const std::map<std::string, void (*)(Pool&, const PoolResource&, cudaStream_t)> kCases = {
    {"aligns_as_asked", AlignsAsAsked},
    {"backs_a_pool", BacksAPool},
    {"follows_scopes", FollowsScopes},
    {"keeps_what_is_not_its_own", KeepsWhatIsNotItsOwn},
    {"orders_streams", OrdersStreams},
    {"serves_rmm", ServesRmm},
    {"serves_through_erased_types", ServesThroughErasedTypes},
    {"settles_what_is_used_at_once", SettlesWhatIsUsedAtOnce},
    {"settles_memory_of_every_device", SettlesMemoryOfEveryDevice},
    {"throws_what_the_concept_asks_for", ThrowsWhatTheConceptAsksFor},
};

}  // namespace

int main(int count, char** words) {
  for (int index = 1; index < count; ++index) {
    const auto found = kCases.find(words[index]);
    if (found == kCases.end()) return 2;
    Pool pool = Make();
    found->second(pool, PoolResource(pool), MakeStream());
    std::printf("%s ok\n", words[index]);
  }
  if (count == 1) {
    for (const auto& [name, call] : kCases) std::printf("%s\n", name.c_str());
  }
  return 0;
}
