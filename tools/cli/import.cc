// commpool import: reads a block of another process's pool, by its ticket.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "commpool/pool.h"
#include "commpool/share.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "tools/cli/commands.h"
#include "tools/cli/shared_bytes.h"
#include "tools/cli/sizes.h"
#include "tools/cli/solo_device.h"

namespace commpool::cli {

namespace {

using nlohmann::json;

struct Arguments {
  std::string ticket;
  std::string bytes;
  std::string hash;
  std::string output_file;
  OutputOptions output;
};

// Lets go of everything at its end.
class Import {
 public:
  static Result<Import> Open(const std::string& ticket) {
    commpool_import handle = 0;
    COMMPOOL_TRY(detail::FromC(commpool_import_open(ticket.c_str(), nullptr, &handle)));
    return Import(handle);
  }
  Import(Import&& other) noexcept : handle_(std::exchange(other.handle_, 0)) {}
  ~Import() {
    if (handle_ != 0) commpool_import_close(handle_);
  }
  Import& operator=(const Import&) = delete;
  commpool_import handle() const { return handle_; }

 private:
  explicit Import(commpool_import handle) : handle_(handle) {}

  commpool_import handle_;
};

// The first bytes of the ticket's block; all of it for 0.
Result<Bytes> Read(const SoloDevice& device, const std::string& ticket, uint64_t count) {
  const Import import = COMMPOOL_TRY(Import::Open(ticket));
  void* block = nullptr;
  uint64_t bytes = 0;
  COMMPOOL_TRY(detail::FromC(commpool_import_block(import.handle(), ticket.c_str(), &block, &bytes)));
  if (count > bytes) {
    return Status(StatusCode::kInvalidArgument,
                  "the block has " + internal::FormatBytes(bytes) + ", and --bytes is larger");
  }
  Bytes found = COMMPOOL_TRY(MakeBytes(count == 0 ? bytes : count));
  COMMPOOL_TRY(detail::FromC(commpool_read_begin(import.handle(), block)));
  const Status copied = CopyOut(device, found, block);
  COMMPOOL_TRY(detail::FromC(commpool_read_end(import.handle(), block, device.streams()[0])));
  if (!copied.ok()) return copied;
  return found;
}

Result<int> Run(const Arguments& arguments) {
  const std::unique_ptr<SoloDevice> device = COMMPOOL_TRY(SoloDevice::Open(1, DriverTimes::kUnmeasured));
  const uint64_t count = arguments.bytes.empty() ? 0 : internal::ParseBytes(arguments.bytes).value();
  const Bytes bytes = COMMPOOL_TRY(Read(*device, arguments.ticket, count));
  if (!arguments.output_file.empty()) COMMPOOL_TRY(WriteFile(arguments.output_file, bytes));
  const std::string hash = HashOf(bytes);
  const bool right = arguments.hash.empty() || arguments.hash == hash;
  const json found = {{"bytes", bytes.size()}, {"hash", hash}, {"as_asked", right}};
  const int code = COMMPOOL_TRY(Report(arguments.output, device->driver().description, found, [&] {
    std::printf("%s, hash %s%s\n", internal::FormatBytes(bytes.size()).c_str(), hash.c_str(),
                right ? "" : (", and it should be " + arguments.hash).c_str());
  }));
  return right ? code : static_cast<int>(kWrongResult);
}

}  // namespace

void AddImport(Command app) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.Add("import", "Read a block of another process's pool, by its ticket");
  command.Footer("Examples:\n  commpool import TICKET\n  commpool import TICKET --output copy.bin");
  command.AddOption("ticket", arguments->ticket, "What commpool share, or a program, printed")
      .Required()
      .Called("TICKET");
  command.AddOption("--bytes", arguments->bytes, "Only the first ones (default: all)").Checked(WhyNoSize);
  command.AddOption("--hash", arguments->hash, "What the hash has to be").Called("HASH");
  command.AddOption("--output", arguments->output_file, "Write the bytes to it").Called("FILE");
  AddOutputOptions(command, arguments->output);
  command.Do([arguments] { return Run(*arguments); });
}

}  // namespace commpool::cli
