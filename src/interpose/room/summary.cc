// What `commpool run` says at the end of each process.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include "src/interpose/nccl_memory/from_pools.h"
#include "src/interpose/nccl_memory/pooled_memory.h"
#include "src/interpose/preload/process_name.h"
#include "src/interpose/room/ask.h"

namespace commpool::run {

namespace {

void WriteTable(const std::string& title, const std::string& table) {
  if (!table.empty()) preload::Write("commpool run: " + preload::NameOfProcess() + ": " + title + "\n" + table);
}

void SayWhyNoPools() {
  if (dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD) != nullptr) {
    preload::Say("run", "nobody called ncclMemAlloc");
  } else if (Settings::Get().started_by == getpid()) {
    preload::Say("run",
                 "no libnccl.so.2 was loaded, and nobody called ncclMemAlloc by its name: where this process used "
                 "NCCL it has one of its own, linked statically, whose memory stayed its own; what it starts "
                 "tells for itself");
  }
}

void SayAtExit() {
  if (preload::IsForked()) return;
  const std::string asked = TableOfAsked();
  WriteTable("out of memory, so pools and PyTorch's cache were asked for what is idle", asked);
  if (asked.empty() && Settings::Get().started_by == getpid()) preload::Say("run", "nothing here ran out of memory");
  if (Settings::Get().nccl_memory == NcclMemory::kOwn) return;
  const std::string pools = TableOfPools();
  WriteTable("ncclMemAlloc from pools", pools);
  if (pools.empty()) SayWhyNoPools();
}

__attribute__((constructor)) void Begin() {
  if (Settings::Get().asked) std::atexit(&SayAtExit);
}

}  // namespace

}  // namespace commpool::run
