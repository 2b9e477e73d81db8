// The header-only C++ classes in a program without exceptions and RTTI: errors are values, and reading a missing value
// ends the program with the reason.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "commpool/buffer.h"
#include "commpool/capture.h"
#include "commpool/configuration.h"
#include "commpool/device.h"
#include "commpool/import.h"
#include "commpool/listing.h"
#include "commpool/pool.h"
#include "commpool/pool_group.h"
#include "commpool/runtime.h"
#include "commpool/scope.h"
#include "commpool/status.h"

#ifdef __cpp_exceptions
#error "this program is about those without exceptions"
#endif

namespace {

using commpool::Buffer;
using commpool::MemoryHolder;
using commpool::Pool;
using commpool::PoolScope;
using commpool::Result;

void Expect(bool holds, const char* fact) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s (%s)\n", fact, commpool_last_error());
  std::exit(1);
}

void ServesBlocks() {
  Pool pool = Pool::create({}).value();
  const PoolScope scope(pool);
  const Result<Buffer> block = pool.allocate(4096, nullptr);
  Expect(block.ok() && pool.stats().value().allocated_blocks.current == 1, "a pool serves a block");
}

void SaysWhatFailed() {
  commpool::PoolOptions options;
  options.alignment_bytes = 3;
  const Result<Pool> refused = Pool::create(options);
  Expect(!refused.ok(), "an alignment of 3 is refused");
  Expect(refused.status().message().find("alignment_bytes 3") != std::string::npos, "the error names the option");
}

void KeepsHolders() {
  commpool::HolderOptions options;
  options.name = "cache";
  options.cached_bytes = [](int) { return std::uint64_t{1}; };
  options.release = [](int, std::uint64_t) { return std::uint64_t{0}; };
  MemoryHolder holder = MemoryHolder::add(options).value();
  Expect(holder.remove().ok(), "a holder is added and removed");
}

void EndsWithTheReason() {
  int ends[2];
  Expect(pipe(ends) == 0, "there is a pipe");
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    Result<int>(commpool::Status(commpool::StatusCode::kNotFound, "nothing there")).value();
    _exit(0);
  }
  close(ends[1]);
  char text[256] = {};
  Expect(read(ends[0], text, sizeof(text) - 1) > 0, "the child says something");
  int state = 0;
  waitpid(child, &state, 0);
  Expect(WIFSIGNALED(state) && WTERMSIG(state) == SIGABRT, "a value that is not there ends the program");
  Expect(std::strcmp(text, "commpool: nothing there\n") == 0, "and says why");
}

}  // namespace

int main() {
  EndsWithTheReason();  // before threads are there
  ServesBlocks();
  SaysWhatFailed();
  KeepsHolders();
  return 0;
}
