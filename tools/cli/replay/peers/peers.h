// Other allocators beside a replayed pool, each in its own process, so that one command writes all columns. One thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "tools/common/command.h"

namespace commpool::cli {

inline constexpr char kTorchNative[] = "torch-native";
inline constexpr char kTorchExpandable[] = "torch-expandable";
inline constexpr char kRmmPool[] = "rmm-pool";
inline constexpr char kRmmArena[] = "rmm-arena";
inline constexpr char kCudaAsync[] = "cuda-async";

// Which traces are replayed, and how they change first.
struct TraceChoice {
  std::vector<std::string> places;  // files and folders
  uint32_t streams = 1;
  double scale = 1;
};

struct PeerOptions {
  std::vector<std::string> beside;  // names
  std::string as;                   // the allocator that this process replays; empty: a pool
  std::string torch_library;
  std::string rmm_library;
  int limit_s = 300;  // of each
};

void AddPeerOptions(Command command, PeerOptions& options);

// kInvalidArgument for a peer without its library.
Status CheckPeers(const PeerOptions& options);

// Peers replay the same traces. Returns by name the traces as `replay --json` prints them, or why the peer failed.
// `emulated`: they run on the emulator and get its libraries too.
nlohmann::json RunPeers(const PeerOptions& options, const TraceChoice& traces, bool emulated);

// Prints a line for each trace and peer, beside this process's own.
void PrintPeers(const nlohmann::json& own, const nlohmann::json& peers);

}  // namespace commpool::cli
