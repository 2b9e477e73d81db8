#include "tools/stress/order/importer.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "commpool/import.h"
#include "src/library/base/try.h"
#include "tools/common/command_line.h"
#include "tools/common/launch.h"
#include "tools/common/process.h"
#include "tools/stress/emulated_run.h"
#include "tools/stress/order/machine.h"

namespace commpool::cli::stress_order {

namespace {

constexpr int kConnection = 900;  // its number in the new process
constexpr size_t kMostBytes = 4096;
constexpr std::chrono::milliseconds kReadTakes(10);
constexpr const char* kDone = "done";

std::optional<std::string> Receive(int connection) {
  std::array<char, kMostBytes> text = {};
  const ssize_t count = recv(connection, text.data(), text.size(), 0);
  if (count <= 0) return std::nullopt;
  return std::string(text.data(), static_cast<size_t>(count));
}

Status Send(int connection, const std::string& text) {
  const auto bytes = static_cast<ssize_t>(text.size());
  if (send(connection, text.data(), text.size(), MSG_NOSIGNAL) == bytes) return Status();
  return Status(StatusCode::kRemoteFailure, "the other process does not listen");
}

class Reader {
 public:
  explicit Reader(Machine& machine) : machine_(machine) {}
  ~Reader() { static_cast<void>(Finish()); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  Status Do(const std::string& line) {
    COMMPOOL_TRY(Finish());
    std::istringstream words(line);
    std::string ticket;
    int device = 0;
    uint64_t bytes = 0;
    uint32_t value = 0;
    if (!(words >> ticket >> device >> bytes >> value)) return Status();
    machine_.MakeCurrent(device);
    import_ = COMMPOOL_TRY(Import::open(ticket));
    const ImportedBlock block = COMMPOOL_TRY(import_->block(ticket));
    machine_.cuda().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    COMMPOOL_TRY(Check(block, bytes, value));
    return import_->release(block, stream_);
  }

 private:
  Status Finish() {
    if (!import_) return Status();
    const Status closed = std::exchange(import_, std::nullopt)->close();
    if (stream_ != nullptr) machine_.cuda().cuStreamDestroy(std::exchange(stream_, nullptr));
    COMMPOOL_TRY(closed);
    if (const uint64_t wrong = wrong_.exchange(0)) {
      return Status(StatusCode::kInternal,
                    "another process read " + std::to_string(wrong) + " wrong words in a block that it held");
    }
    const std::vector<std::string> reports = EmulatorLines(machine_.driver(), "commpoolEmulatorReports");
    return reports.empty() ? Status() : Status(StatusCode::kInternal, "in another process: " + reports.front());
  }

  // Looks late: what is written meanwhile shows.
  Status Check(const ImportedBlock& block, uint64_t bytes, uint32_t value) {
    const auto wait = [](const std::vector<const void*>&, const std::vector<void*>&) {
      std::this_thread::sleep_for(kReadTakes);
    };
    const auto look = [this, bytes, value](const std::vector<const void*>& reads, const std::vector<void*>&) {
      for (uint64_t at = 0; at + sizeof(value) <= bytes; at += 512) {
        uint32_t found = 0;
        std::memcpy(&found, static_cast<const char*>(reads[0]) + at, sizeof(found));
        if (found != value) wrong_.fetch_add(1);
      }
    };
    const auto address = reinterpret_cast<CUdeviceptr>(block.data);
    COMMPOOL_TRY(internal::Launch(machine_.driver(), stream_, {}, {}, wait));
    return internal::Launch(machine_.driver(), stream_, {{address, bytes}}, {}, look);
  }

  Machine& machine_;
  std::optional<Import> import_;
  CUstream stream_ = nullptr;
  std::atomic<uint64_t> wrong_{0};
};

}  // namespace

Result<std::unique_ptr<Importer>> Importer::Start() {
  std::array<int, 2> ends = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Status(StatusCode::kOutOfMemory, "no descriptors for another process");
  }
  std::unique_ptr<Importer> importer(new Importer());
  importer->connection_ = internal::FileDescriptor(ends[0]);
  const internal::FileDescriptor of_child(ends[1]);
  importer->process_ =
      COMMPOOL_TRY(StartProcess({.program = kOwnProgram,
                                 .words = {"commpool_stress", "order", "--importer", std::to_string(kConnection)},
                                 .files = {{of_child.get(), kConnection}}}));
  return importer;
}

Importer::~Importer() {
  connection_ = internal::FileDescriptor();
  if (process_ > 0) waitpid(process_, nullptr, 0);
}

Status Importer::Ask(const std::string& line) {
  COMMPOOL_TRY(Send(connection_.get(), line));
  const std::optional<std::string> answer = Receive(connection_.get());
  if (!answer) return Status(StatusCode::kRemoteFailure, "the other process has ended");
  return *answer == kDone ? Status() : Status(StatusCode::kInternal, *answer);
}

Status Importer::Read(const std::string& ticket, int device, uint64_t bytes, uint32_t value) {
  return Ask(ticket + " " + std::to_string(device) + " " + std::to_string(bytes) + " " + std::to_string(value));
}

Status Importer::Finish() { return Ask("finish"); }

Result<int> RunImporter(int connection) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // the process ends with the command
  const std::unique_ptr<Machine> machine = COMMPOOL_TRY(Machine::Open(Plant::kNone, Judge::kAll));
  Reader reader(*machine);
  while (const std::optional<std::string> line = Receive(connection)) {
    const Status status = reader.Do(*line);
    COMMPOOL_TRY(Send(connection, status.ok() ? kDone : status.message()));
  }
  return kSuccess;
}

}  // namespace commpool::cli::stress_order
