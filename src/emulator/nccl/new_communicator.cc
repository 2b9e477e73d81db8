#include "src/emulator/nccl/new_communicator.h"

#include <cstdlib>
#include <utility>

#include "src/emulator/nccl/live_communicators.h"
#include "src/emulator/nccl/log.h"
#include "src/emulator/nccl/releases.h"

namespace commpool::internal::emulated_nccl {

namespace {

// NCCL 2.28.9, src/init.cc: the variable replaces what the program says, and a value that NCCL does not know is none.
int PolicyOf(int asked) {
  const char* const variable = NcclVariable("NCCL_CTA_POLICY");
  if (variable != nullptr && *variable != '\0') asked = std::atoi(variable);
  const int most = ClaimedVersion() < kFirstWithCombinedPolicies ? NCCL_CTA_POLICY_ZERO
                                                                 : NCCL_CTA_POLICY_ZERO | NCCL_CTA_POLICY_EFFICIENCY;
  return asked < NCCL_CTA_POLICY_DEFAULT || asked > most ? NCCL_CTA_POLICY_DEFAULT : asked;
}

}  // namespace

ncclResult_t ReadConfig(const ncclConfig_t* config, const Configuration& inherited, Configuration* configuration) {
  constexpr unsigned int kConfigMagic = 0xcafebeef;
  *configuration = inherited;
  if (config == nullptr) return ncclSuccess;
  if (config->magic != kConfigMagic) {
    COMMPOOL_NCCL_WARN("ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    return ncclInvalidArgument;
  }
  const int least = config->minCTAs, most = config->maxCTAs;
  // A minimum without a maximum is larger than the unset maximum, which is a very small number.
  if ((least != NCCL_CONFIG_UNDEF_INT && least <= 0) || (most != NCCL_CONFIG_UNDEF_INT && most <= 0) || least > most) {
    COMMPOOL_NCCL_WARN("Invalid config min/max channels attribute value %d/%d", least, most);
    return ncclInvalidArgument;
  }
  configuration->cta_policy = config->CTAPolicy;
  configuration->split_shares = config->splitShare == 1;
  configuration->shrink_shares = config->shrinkShare == 1;
  if (config->blocking == NCCL_CONFIG_UNDEF_INT) return ncclSuccess;
  if (config->blocking != 0 && config->blocking != 1) {
    COMMPOOL_NCCL_WARN("Invalid config blocking attribute value %d", config->blocking);
    return ncclInvalidArgument;
  }
  using Blocking = Configuration::Blocking;
  configuration->blocking = config->blocking == 0 ? Blocking::kNo : Blocking::kYes;
  return ncclSuccess;
}

NewCommunicator::NewCommunicator(ncclComm_t* target, const Configuration& configuration)
    : target_(target), configuration_(configuration) {
  configuration_.cta_policy = PolicyOf(configuration.cta_policy);
  if (configuration.blocking == Configuration::Blocking::kNo) {
    async_ = std::make_shared<AsyncWork>();
    handle_ = LiveCommunicators::Get().Reserve(async_);
  }
  *target_ = handle_;
}

ncclResult_t NewCommunicator::Make(EmulatedCommunicator::Place place, const ncclUniqueId& id) const {
  place.configuration = configuration_;
  place.async = async_;
  std::shared_ptr<EmulatedCommunicator> created;
  if (const ncclResult_t result = EmulatedCommunicator::Create(place, id, &created); result != ncclSuccess)
    return result;
  if (async_ == nullptr) {
    *target_ = LiveCommunicators::Get().Add(std::move(created));
  } else if (!LiveCommunicators::Get().Fill(handle_, created)) {
    created->Abort();  // the program has already given the handle up
  }
  return ncclSuccess;
}

}  // namespace commpool::internal::emulated_nccl
