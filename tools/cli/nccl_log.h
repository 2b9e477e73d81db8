// Reads from NCCL's log what NCCL used, because success is no proof (rule 10 of src/library/reference.md).
//
// The lines are NCCL 2.28's: "[Symmetric]" and "Algo ... proto ..." under TUNING, "IPC register", "IPC reuse" and
// "NVLS" under REG. The emulated NCCL writes the same. NCCL reads its settings once, so the log is set up before its
// first call.
//
// The log is a nameless memory file: nobody else can open it or put a link in its place, and it goes with the process.
#pragma once

#include <sys/types.h>

#include <string>

#include "src/library/base/file_descriptor.h"

namespace commpool::cli {

// What one rank's log says about one row of the table. When ranks are combined the higher value wins.
enum class UsedRegistration { kNone, kLocal, kWindow };

const char* Name(UsedRegistration used);

struct LogFindings {
  UsedRegistration used = UsedRegistration::kNone;
  // Whether NCCL ran a protocol that can use a local registration at all (SIMPLE). Only rank 0 knows it.
  bool could_use_local = false;
};

// Reads some lines of the log.
LogFindings ReadLines(const std::string& lines);

// This process's log.
class NcclLog {
 public:
  // Sets NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE. Throws std::system_error where the system has no descriptor
  // or memory left.
  NcclLog();
  NcclLog(const NcclLog&) = delete;
  NcclLog& operator=(const NcclLog&) = delete;

  // Reads what was logged since the last call.
  LogFindings Next();

 private:
  internal::FileDescriptor memory_;
  off_t position_ = 0;
};

}  // namespace commpool::cli
