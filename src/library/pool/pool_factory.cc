// Puts a pool together: asks the machine, checks the options against it, and makes engine, parts and mode. All ranks
// make a symmetric pool in one call, so a failure on this rank must reach the others.
#include "src/library/pool/pool_factory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"
#include "src/library/engine/expandable_engine.h"
#include "src/library/pool/growing/growing_mode.h"
#include "src/library/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

namespace {

// Checks what CheckConfiguration cannot know: the backing's granularity, and which devices can be peers. Calls the
// driver, and makes nothing.
Status CheckAgainstMachine(const Driver& driver, const Backing& backing, const PoolConfiguration& configuration) {
  if (configuration.mode == Mode::kExpandable && backing.row().movement == Movement::kNever) {
    const MemoryFacts facts = backing.Facts();
    return NotSupported("pool options: mode EXPANDABLE needs memory that can move, and here is only that of ",
                        facts.what, " (", facts.why, ")");
  }
  if (configuration.alignment_bytes > backing.granularity()) {
    return InvalidArgument("pool options: alignment_bytes ", FormatBytes(configuration.alignment_bytes),
                           " is more than the ", backing.name(), " backing's granularity of ",
                           FormatBytes(backing.granularity()));
  }
  const int devices = COMMPOOL_TRY(DeviceCount(driver));
  if (configuration.peers.size() > static_cast<size_t>(devices)) {
    return InvalidArgument("pool options: ", configuration.peers.size(), " peers are named, and this process sees ",
                           devices, " devices");
  }
  for (const int peer : configuration.peers) {
    if (peer == configuration.backing.placement.device) continue;
    COMMPOOL_TRY(backing.CanGrant(peer).under("pool options"));
  }
  return Status();
}

// Makes the parts whose construction can fail. The first pool of a device retains the device's primary context. A
// failure leaves nothing behind: what was made goes with its object.
Result<PoolIngredients> Gather(RuntimeParts& runtime, PoolConfiguration configuration) {
  std::shared_ptr<DeviceState> device = COMMPOOL_TRY(runtime.devices.Get(configuration.backing.placement.device));
  std::unique_ptr<Backing> backing = COMMPOOL_TRY(MakeBacking(runtime.driver, configuration.backing));
  COMMPOOL_TRY(CheckAgainstMachine(runtime.driver, *backing, configuration));
  std::shared_ptr<MemoryAccount> account =
      COMMPOOL_TRY(runtime.devices.AccountOf(backing->placement(), configuration.budget));
  // Such as "pool gradients (vmm, device 1)"; without a name "pool (vmm, device 1)".
  const std::string named = configuration.name == PoolConfiguration().name ? "pool" : "pool " + configuration.name;
  const std::string title =
      named + " (" + backing->name() + ", device " + std::to_string(backing->placement().device) + ")";
  std::unique_ptr<PoolBasis> basis(new PoolBasis{
      .runtime = runtime, .device = std::move(device), .configuration = std::move(configuration), .title = title});
  return PoolIngredients{std::move(basis), std::move(backing), std::move(account)};
}

// Segments and pages are multiples of this. The option may raise the backing's granularity, never lower it.
uint64_t GranularityOf(const PoolIngredients& ingredients) {
  return std::max(ingredients.basis->configuration.granularity_bytes, ingredients.backing->granularity());
}

// Makes a fixed or an expandable pool. It has no memory yet: the first allocation or reserve makes some. Host memory
// has its own ways: segments as large as asked, and reuse only once the stream has passed, unless the program orders
// its frees.
Result<std::shared_ptr<Pool>> MakeGrowingPool(RuntimeParts& runtime, PoolConfiguration configuration) {
  PoolIngredients ingredients = COMMPOOL_TRY(Gather(runtime, std::move(configuration)));
  const PoolConfiguration& asked = ingredients.basis->configuration;
  engine::EngineOptions options = GrowingEngineOptions(asked, GranularityOf(ingredients));
  if (ingredients.backing->row().places == Places::kHost) {
    options.segment_sizes = engine::SegmentSizes::kExact;
    const bool ordered = asked.frees == engine::FreeOrder::kOrdered;
    options.own_reuse = ordered ? engine::OwnReuse::kAtOnce : engine::OwnReuse::kOncePassed;
    ingredients.basis->own_reuse = options.own_reuse;
  }
  // It is rounded up with the block.
  if (ingredients.basis->runtime.observer.TakesHeapsOf(*ingredients.backing)) options.guard_bytes = 1;
  if (asked.mode == Mode::kExpandable) {
    ingredients.engine = std::make_unique<engine::ExpandableEngine>(options);
  } else {
    ingredients.engine = std::make_unique<engine::CachingEngine>(options);
  }
  return Pool::Make(std::move(ingredients),
                    [](const PoolParts& parts) { return std::make_unique<GrowingMode>(parts); });
}

// `home` is filled in even where its ranks cannot be reached.
Result<std::unique_ptr<AgreementChannel>> ReachHome(RuntimeParts& runtime, const PoolConfiguration& configuration,
                                                    Communicator& home) {
  home = COMMPOOL_TRY(DescribeCommunicator(runtime.driver, configuration.home, configuration.deadline_ms));
  std::shared_ptr<DeviceState> device = COMMPOOL_TRY(runtime.devices.Get(home.device));
  return Collective::OpenChannel(device->context(), runtime, home, configuration);
}

// One rank's bad options must not make the others wait, so each step that can fail here becomes part of the first
// agreement. Only a rank without a usable communicator cannot tell the others.
Result<std::shared_ptr<Pool>> MakeSymmetricPool(RuntimeParts& runtime, PoolConfiguration configuration) {
  Communicator home;
  std::unique_ptr<AgreementChannel> channel = COMMPOOL_TRY(ReachHome(runtime, configuration, home));
  Result<PoolIngredients> ingredients = Gather(runtime, std::move(configuration));
  // The channel is open, so the other ranks hear the reason at once.
  if (!ingredients.ok()) return Collective::Refuse(*channel, CollectiveCall::kCreate, ingredients.status());
  // The reason is no error of this rank alone: all ranks hear it in their first agreement. Each rank answers for its
  // own backing and device.
  Status readiness = ingredients->backing->CanRegisterWindow();
  if (const int device = ingredients->basis->device->device(); readiness.ok() && home.device != device) {
    readiness = InvalidArgument("symmetric_across is a communicator of device ", home.device,
                                ", and the pool is of device ", device);
  }
  const PoolConfiguration& options = ingredients->basis->configuration;
  ingredients->engine =
      std::make_unique<engine::SymmetricEngine>(engine::EngineOptions{.alignment = options.alignment_bytes,
                                                                      .granularity = GranularityOf(*ingredients),
                                                                      .segment_bytes = options.segment_bytes},
                                                options.frees);
  std::shared_ptr<Pool> pool = Pool::Make(
      std::move(*ingredients), [&](const PoolParts& parts) { return std::make_unique<SymmetricMode>(parts, home); });
  // Where one rank is not ready no rank gets a pool: this one goes at the end of this function.
  COMMPOOL_TRY(pool->mode().AsSymmetric()->Open(std::move(channel), readiness));
  return pool;
}

}  // namespace

// The pool has no handle yet, and no thread but this one knows it.
Result<std::shared_ptr<Pool>> MakePool(RuntimeParts& runtime, PoolConfiguration configuration) {
  return (configuration.symmetric() ? MakeSymmetricPool : MakeGrowingPool)(runtime, std::move(configuration));
}

// This rank's options were refused before there was a pool. It connects all the same, and answers the first agreement
// with `why`: otherwise the other ranks would wait for it until their deadline.
Status RefusePool(RuntimeParts& runtime, const PoolConfiguration& configuration, const Status& why) {
  Communicator home;
  const Result<std::unique_ptr<AgreementChannel>> channel = ReachHome(runtime, configuration, home);
  if (channel.ok()) return Collective::Refuse(**channel, CollectiveCall::kCreate, why);
  // Without a communicator nobody can be reached, and nobody waits.
  if (home.handle == nullptr) return why;
  return Failure(why.code(), why.message(), "; the other ranks could not be told: ", channel.status().message());
}

}  // namespace commpool::internal
