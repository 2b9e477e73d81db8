// Devices, contexts, errors.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "src/emulator/cuda/api.h"
#include "src/emulator/cuda/device_attributes.h"

using namespace commpool::internal::emulator;  // NOLINT: this file is C on the outside

namespace {

bool IsDevice(const Machine& machine, int device) { return device >= 0 && device < machine.description.devices(); }

bool IsContext(const Machine& machine, CUcontext context) {
  return std::any_of(machine.contexts.begin(), machine.contexts.end(),
                     [&](const auto& primary) { return primary.get() == context; });
}

// The thread's stack of contexts without its top. The top is the current context.
std::vector<CUcontext>& ContextsBelow() {
  thread_local std::vector<CUcontext> below;
  return below;
}

CUresult PopContext() {
  CurrentContext() = ContextsBelow().empty() ? nullptr : ContextsBelow().back();
  if (!ContextsBelow().empty()) ContextsBelow().pop_back();
  return CUDA_SUCCESS;
}

struct Words {
  const char* name = nullptr;
  const char* text = nullptr;
};

// Returns nothing for a number that is not a result.
Words WordsOf(CUresult result) {
  switch (result) {
#define COMMPOOL_CUDA_RESULT(name, text) \
  case name:                             \
    return {#name, text};
#include "src/emulator/cuda/results.inc"
#undef COMMPOOL_CUDA_RESULT
  }
  return {};
}

CUresult Answer(const char* word, const char** output) {
  if (output == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *output = word;
  return word == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

CUresult cuInit(unsigned int flags) {
  return Call("cuInit", Needs::kNothing, [&](Machine& machine, auto&) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return machine.Initialise();
  });
}

CUresult cuDriverGetVersion(int* version) {
  return Call("cuDriverGetVersion", Needs::kNothing, [&](Machine&, auto&) {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = kDriverVersion;
    return CUDA_SUCCESS;
  });
}

CUresult cuGetErrorName(CUresult error, const char** name) { return Answer(WordsOf(error).name, name); }

CUresult cuGetErrorString(CUresult error, const char** text) { return Answer(WordsOf(error).text, text); }

CUresult cuDeviceGetCount(int* count) {
  return Call("cuDeviceGetCount", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = machine.description.devices();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return Call("cuDeviceGet", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!IsDevice(machine, ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return Call("cuDeviceGetName", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (!IsDevice(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(name, static_cast<size_t>(length), "commpool emulated GPU %d", machine.description.NumberOf(device));
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return Call("cuDeviceGetUuid", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!IsDevice(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    std::memset(uuid, 0, sizeof(*uuid));
    uuid->bytes[0] = static_cast<char>(machine.description.NumberOf(device) + 1);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  return Call("cuDeviceTotalMem", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!IsDevice(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = machine.description.device_bytes();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return Call("cuDeviceGetAttribute", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (value == nullptr || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    if (!IsDevice(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    *value = AttributeOf(machine.description, attribute, device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return Call("cuDeviceGetPCIBusId", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (text == nullptr || length < 13) return CUDA_ERROR_INVALID_VALUE;
    if (!IsDevice(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(text, static_cast<size_t>(length), "0000:%02X:00.0", machine.description.NumberOf(device) + 1);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return Call("cuDeviceCanAccessPeer", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!IsDevice(machine, device) || !IsDevice(machine, peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer && machine.description.Linked(device, peer) ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer) {
  return Call("cuDeviceGetP2PAttribute", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!IsDevice(machine, device) || !IsDevice(machine, peer) || device == peer) return CUDA_ERROR_INVALID_DEVICE;
    const bool linked = machine.description.Linked(device, peer);
    *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ? 0 : linked ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return Call("cuDevicePrimaryCtxRetain", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!IsDevice(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    CUctx_st* const primary = machine.contexts[static_cast<size_t>(device)].get();
    ++primary->retained;
    *context = primary;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return Call("cuDevicePrimaryCtxRelease", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (!IsDevice(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    CUctx_st& primary = *machine.contexts[static_cast<size_t>(device)];
    if (primary.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    --primary.retained;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return Call("cuDevicePrimaryCtxGetState", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (!IsDevice(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    const CUctx_st& primary = *machine.contexts[static_cast<size_t>(device)];
    if (flags != nullptr) *flags = primary.flags;
    if (active != nullptr) *active = primary.retained > 0 ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return Call("cuCtxGetCurrent", Needs::kInitialised, [&](Machine&, auto&) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *context = CurrentContext();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return Call("cuCtxSetCurrent", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (context == nullptr) return PopContext();
    if (!IsContext(machine, context)) return CUDA_ERROR_INVALID_CONTEXT;
    CurrentContext() = context;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPushCurrent(CUcontext context) {
  return Call("cuCtxPushCurrent", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (!IsContext(machine, context)) return CUDA_ERROR_INVALID_CONTEXT;
    if (CurrentContext() != nullptr) ContextsBelow().push_back(CurrentContext());
    CurrentContext() = context;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  return Call("cuCtxPopCurrent", Needs::kInitialised, [&](Machine&, auto&) {
    if (CurrentContext() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context != nullptr) *context = CurrentContext();
    return PopContext();
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return Call("cuCtxGetDevice", Needs::kInitialised, [&](Machine&, auto&) {
    if (CurrentContext() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = CurrentDevice();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  return Call("cuCtxSynchronize", Needs::kCurrentContext, [](Machine& machine, auto& lock) {
    CUresult refused = machine.captures.RefuseDevice(CurrentDevice());
    if (refused == CUDA_SUCCESS) refused = machine.captures.RefuseUnsafe();
    if (refused != CUDA_SUCCESS) return refused;
    machine.scheduler.WaitForDevice(lock, CurrentDevice());
    machine.async_memory.HostWaitedForDevice(CurrentDevice());
    return CurrentContext()->sticky;
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  return Call("cuCtxEnablePeerAccess", Needs::kCurrentContext, [&](Machine& machine, auto&) {
    if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (peer->device == CurrentDevice()) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (!machine.description.Linked(CurrentDevice(), peer->device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    const bool added = CurrentContext()->enabled_peers.insert(peer->device).second;
    return added ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  return Call("cuCtxDisablePeerAccess", Needs::kCurrentContext, [&](Machine&, auto&) {
    if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return CurrentContext()->enabled_peers.erase(peer->device) != 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  });
}
