#include "src/pool/pool_factory.h"

#include <utility>

#include "src/base/bytes.h"
#include "src/pool/expandable_pool.h"
#include "src/pool/fixed_pool.h"
#include "src/pool/symmetric_pool.h"
#include "src/registration/home_channel.h"

namespace commpool::internal {

namespace {

Status CheckAgainstBacking(const Backing& backing, const PoolConfiguration& configuration) {
  if (configuration.alignment_bytes > backing.granularity()) {
    return Status(StatusCode::kInvalidArgument,
                  "pool options: alignment_bytes " + FormatBytes(configuration.alignment_bytes) + " is more than the " +
                      backing.name() + " backing's granularity of " + FormatBytes(backing.granularity()));
  }
  for (const int peer : configuration.peers) {
    if (peer == configuration.backing.placement.device) continue;
    const Capability capability = backing.CanGrant(peer);
    if (!capability.available) return Status(StatusCode::kNotSupported, "pool options: " + capability.reason);
  }
  return Status();
}

Result<PoolParts> MakeParts(const Driver& driver, DeviceTable& devices, SharedState& shared,
                            PoolConfiguration configuration) {
  Result<std::shared_ptr<DeviceState>> device = devices.Get(configuration.backing.placement.device);
  if (!device.ok()) return device.status();
  Result<std::unique_ptr<Backing>> backing = MakeBacking(driver, configuration.backing);
  if (!backing.ok()) return backing.status();
  Status status = CheckAgainstBacking(**backing, configuration);
  if (!status.ok()) return status;
  return PoolParts{driver, shared, std::move(*device), std::move(*backing), std::move(configuration)};
}

Result<std::unique_ptr<AgreementChannel>> OpenChannel(const Driver& driver, const DeviceState& device,
                                                      const Communicator& home,
                                                      const PoolConfiguration& configuration) {
  if (configuration.all_gather != nullptr) {
    return MakeCallerChannel(home.rank, home.ranks, configuration.all_gather, configuration.all_gather_context);
  }
  ContextGuard guard(driver, device.context());
  return OpenHomeChannel(driver, home, configuration.deadline_ms);
}

Status WhyNotSymmetric(const Backing& backing, const Communicator& home, int device) {
  const Capability capability = backing.CanRegisterWindow();
  if (!capability.available) return Status(StatusCode::kNotSupported, capability.reason);
  if (home.device != device) {
    return Status(StatusCode::kInvalidArgument, "the home communicator is of device " + std::to_string(home.device) +
                                                    ", the pool of " + std::to_string(device));
  }
  return Status();
}

// Bad options of one rank must not hang the others, so what can fail is put into the first agreement. Only a rank
// without a usable communicator has no way to tell the others.
Result<std::shared_ptr<Pool>> MakeSymmetricPool(const Driver& driver, DeviceTable& devices, SharedState& shared,
                                                PoolConfiguration configuration) {
  Result<Communicator> home = DescribeCommunicator(driver, configuration.home, configuration.deadline_ms);
  if (!home.ok()) return home.status();
  Result<std::shared_ptr<DeviceState>> home_device = devices.Get(home->device);
  if (!home_device.ok()) return home_device.status();
  Result<std::unique_ptr<AgreementChannel>> channel = OpenChannel(driver, **home_device, *home, configuration);
  if (!channel.ok()) return channel.status();

  Result<PoolParts> parts = MakeParts(driver, devices, shared, std::move(configuration));
  if (!parts.ok()) {
    Intent refusal{.call = CollectiveCall::kCreate};
    refusal.readiness = parts.status();
    return TellRefusal(**channel, refusal);
  }
  const Status readiness = WhyNotSymmetric(*parts->backing, *home, parts->device->device());
  auto pool = std::make_shared<SymmetricPool>(std::move(*parts), *home, std::move(*channel));
  Status opened = pool->Open(readiness);
  if (!opened.ok()) return opened;
  return std::shared_ptr<Pool>(std::move(pool));
}

}  // namespace

Result<std::shared_ptr<Pool>> MakePool(const Driver& driver, DeviceTable& devices, SharedState& shared,
                                       PoolConfiguration configuration) {
  if (configuration.symmetric()) return MakeSymmetricPool(driver, devices, shared, std::move(configuration));
  Result<PoolParts> parts = MakeParts(driver, devices, shared, std::move(configuration));
  if (!parts.ok()) return parts.status();
  if (parts->configuration.mode == Mode::kExpandable) {
    return std::shared_ptr<Pool>(std::make_shared<ExpandablePool>(std::move(*parts)));
  }
  return std::shared_ptr<Pool>(std::make_shared<FixedPool>(std::move(*parts)));
}

Status RefusePool(const Driver& driver, DeviceTable& devices, const PoolConfiguration& configuration,
                  const Status& why) {
  Result<Communicator> home = DescribeCommunicator(driver, configuration.home, configuration.deadline_ms);
  if (!home.ok()) return why;
  Result<std::shared_ptr<DeviceState>> device = devices.Get(home->device);
  if (!device.ok()) return why;
  Result<std::unique_ptr<AgreementChannel>> channel = OpenChannel(driver, **device, *home, configuration);
  if (!channel.ok()) {
    return Status(why.code(), why.message() + "; the other ranks could not be told: " + channel.status().message());
  }
  Intent refusal{.call = CollectiveCall::kCreate};
  refusal.readiness = why;
  return TellRefusal(**channel, refusal);
}

}  // namespace commpool::internal
