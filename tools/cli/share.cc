// commpool share: holds a pool with a pattern, or with a file, for processes that import it.
#include "commpool/share.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "commpool/pool.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "tools/cli/commands.h"
#include "tools/cli/shared_bytes.h"
#include "tools/cli/sizes.h"
#include "tools/cli/solo_device.h"

namespace commpool::cli {

namespace {

using nlohmann::json;

struct Arguments {
  std::string bytes = "64M";
  std::string file;
  OutputOptions output;
};

// The block may be larger than what was asked for, so the bytes are counted.
std::string ImportOf(const json& shared) {
  return "commpool import " + shared["ticket"].get<std::string>() + " --bytes " +
         std::to_string(shared["bytes"].get<uint64_t>()) + " --hash " + shared["hash"].get<std::string>();
}

void AwaitEndOfInput() {
  while (std::getchar() != EOF) {
  }
}

Result<int> Run(const Arguments& arguments) {
  const std::string& file = arguments.file;
  const uint64_t count = file.empty() ? internal::ParseBytes(arguments.bytes).value() : COMMPOOL_TRY(SizeOfFile(file));
  const std::unique_ptr<SoloDevice> device = COMMPOOL_TRY(SoloDevice::Open(1, DriverTimes::kUnmeasured));
  PoolOptions options;
  options.name = "shared";
  Pool pool = COMMPOOL_TRY(Pool::create(options));
  Buffer block = COMMPOOL_TRY(pool.allocate(count, device->streams()[0]));  // before the host is asked for as much
  const Bytes bytes = COMMPOOL_TRY(file.empty() ? PatternOf(count) : ReadFile(file, count));
  const internal::CudaDriver& cuda = device->driver().cuda;
  const auto address = reinterpret_cast<CUdeviceptr>(block.data());
  COMMPOOL_TRY(internal::CheckCuda(device->driver(), cuda.cuMemcpyHtoD(address, bytes.data(), bytes.size()),
                                   {.call = "cuMemcpyHtoD", .device = 0, .bytes = bytes.size()}));
  COMMPOOL_TRY(
      internal::CheckCuda(device->driver(), cuda.cuCtxSynchronize(), {.call = "cuCtxSynchronize", .device = 0}));
  char ticket[COMMPOOL_TICKET_BYTES];
  COMMPOOL_TRY(detail::FromC(commpool_block_share(block.data(), COMMPOOL_WRITES_ENDED, ticket, sizeof(ticket))));
  const json shared = {{"ticket", ticket}, {"bytes", bytes.size()}, {"hash", HashOf(bytes)}};
  const int code = COMMPOOL_TRY(Report(arguments.output, device->driver().description, shared, [&] {
    std::printf("%s on device 0. In another shell, until this one's input ends (Ctrl-D):\n%s\n",
                internal::FormatBytes(bytes.size()).c_str(), ImportOf(shared).c_str());
  }));
  std::fflush(stdout);
  AwaitEndOfInput();
  return code;
}

}  // namespace

void AddShare(Command app) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.Add("share", "Hold a pool for other processes of this user, until the input ends");
  command.Footer("Examples:\n  commpool share\n  commpool share --file weights.bin");
  command.AddOption("--bytes", arguments->bytes, "Of a pattern on device 0").Checked(WhyNoSize);
  command.AddOption("--file", arguments->file, "Share what it has instead").Called("FILE");
  AddOutputOptions(command, arguments->output);
  command.Do([arguments] { return Run(*arguments); });
}

}  // namespace commpool::cli
