// Another process that imports blocks and reads them while their owner frees them. One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "commpool/status.h"
#include "src/library/base/file_descriptor.h"

namespace commpool::cli::stress_order {

class Importer {
 public:
  // Starts this program again.
  static Result<std::unique_ptr<Importer>> Start();
  ~Importer();
  Importer(const Importer&) = delete;
  Importer& operator=(const Importer&) = delete;

  // The process imports the block, submits a slow read, lets the block go behind it and answers. The failure of an
  // earlier read comes with a later call.
  Status Read(const std::string& ticket, int device, uint64_t bytes, uint32_t value);
  // It ends its imports.
  Status Finish();

 private:
  Importer() = default;
  Status Ask(const std::string& line);

  internal::FileDescriptor connection_;
  pid_t process_ = -1;
};

// The process itself, until its connection ends.
Result<int> RunImporter(int connection);

}  // namespace commpool::cli::stress_order
