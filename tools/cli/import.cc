// commpool import: reads a block of another process's pool, by its ticket.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "commpool/pool.h"
#include "commpool/share.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"
#include "src/library/driver/handles.h"
#include "tools/cli/commands.h"
#include "tools/cli/ranks.h"
#include "tools/cli/shared_bytes.h"
#include "tools/cli/sizes.h"

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

// Of the pool's device, whose address the ticket has: processes number devices as they like.
Result<internal::PrimaryContext> ContextFor(const internal::Driver& driver, const std::string& ticket) {
  int device = COMMPOOL_TRY(internal::DeviceCount(driver));
  while (--device > 0 && ticket.find("," + internal::PciBusIdOf(driver, device) + ",") == std::string::npos) {
  }
  return internal::PrimaryContext::Retain(driver, device);
}

// The first bytes of the ticket's block; all of it for 0.
Result<Bytes> Read(const internal::Driver& driver, const std::string& ticket, uint64_t count) {
  const Import import = COMMPOOL_TRY(Import::Open(ticket));
  void* block = nullptr;
  uint64_t bytes = 0;
  COMMPOOL_TRY(detail::FromC(commpool_import_block(import.handle(), ticket.c_str(), &block, &bytes)));
  if (count > bytes) {
    return Status(StatusCode::kInvalidArgument,
                  "the block has " + internal::FormatBytes(bytes) + ", and --bytes is larger");
  }
  Bytes found = COMMPOOL_TRY(MakeBytes(count == 0 ? bytes : count));
  const internal::PrimaryContext context = COMMPOOL_TRY(ContextFor(driver, ticket));
  const internal::ContextGuard current(driver, context);  // no other device need reach the memory
  COMMPOOL_TRY(detail::FromC(commpool_read_begin(import.handle(), block)));
  const Status copied = internal::CheckCuda(
      driver, driver.cuda.cuMemcpyDtoH(found.data(), reinterpret_cast<CUdeviceptr>(block), found.size()),
      {.call = "cuMemcpyDtoH", .device = context.device(), .bytes = found.size()});
  COMMPOOL_TRY(detail::FromC(commpool_read_end(import.handle(), block, nullptr)));
  if (!copied.ok()) return copied;
  return found;
}

Result<int> Run(const Arguments& arguments) {
  const std::shared_ptr<const internal::Driver> driver = COMMPOOL_TRY(OpenDriver());
  const bool emulated = driver->kind == internal::DriverChoice::kEmulated;
  COMMPOOL_TRY(detail::FromC(
      commpool_initialize(emulated ? COMMPOOL_DRIVER_EMULATED : COMMPOOL_DRIVER_CUDA, COMMPOOL_MEASURE_NOTHING)));
  const uint64_t count = arguments.bytes.empty() ? 0 : internal::ParseBytes(arguments.bytes).value();
  const Bytes bytes = COMMPOOL_TRY(Read(*driver, arguments.ticket, count));
  if (!arguments.output_file.empty()) COMMPOOL_TRY(WriteFile(arguments.output_file, bytes));
  const std::string hash = HashOf(bytes);
  const bool right = arguments.hash.empty() || arguments.hash == hash;
  const json found = {{"bytes", bytes.size()}, {"hash", hash}, {"as_asked", right}};
  const int code = COMMPOOL_TRY(Report(arguments.output, driver->description, found, [&] {
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
