// The C++ headers for pools in other processes. Compiled as C++17 and as C++20. The other process is a fork that asks
// nothing of a driver before it imports.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <type_traits>

#include "commpool/import.h"
#include "commpool/pool.h"

namespace commpool {
namespace {

static_assert(!std::is_copy_constructible_v<Import> && !std::is_copy_assignable_v<Import>);
static_assert(std::is_nothrow_move_constructible_v<Import>);

// What the other process finds, as its exit code: the step that failed, from 1, or 0.
int Reads(const std::string& ticket, const void* theirs) {
  Result<Import> opened = Import::open(ticket);
  if (!opened.ok()) return 1;
  Import import = std::move(*opened);
  const Result<ImportedBlock> block = import.block(ticket);
  if (!block.ok() || block->bytes != MiB(1)) return 2;
  const Result<void*> address = import.address(theirs);
  if (!address.ok() || *address != block->data) return 3;
  if (!import.begin_read(*block).ok()) return 4;
  if (!import.end_read(*block, nullptr).ok()) return 5;
  if (!import.release(*block, nullptr).ok()) return 6;
  if (import.release(*block, nullptr).code() != StatusCode::kNotFound) return 7;
  if (!import.close().ok()) return 8;
  return import.handle() == 0 ? 0 : 9;
}

// The fork comes first: a child of a process that has opened the driver may not use it.
class ImportSkin : public ::testing::Test {
 protected:
  ImportSkin() {
    if (pipe(ends_) != 0) std::abort();
    child_ = fork();
    if (child_ != 0) return;
    close(ends_[1]);  // so that it ends where the test does before it tells
    char ticket[COMMPOOL_TICKET_BYTES] = {};
    const void* theirs = nullptr;
    const bool told = read(ends_[0], &theirs, sizeof(theirs)) == sizeof(theirs) &&
                      read(ends_[0], ticket, sizeof(ticket)) == sizeof(ticket);
    std::exit(told ? Reads(ticket, theirs) : 10);
  }
  ~ImportSkin() override {
    for (const int end : ends_) close(end);
  }
  int Tell(std::string ticket, const void* block) {
    ticket.resize(COMMPOOL_TICKET_BYTES);
    if (write(ends_[1], &block, sizeof(block)) < 0 || write(ends_[1], ticket.data(), ticket.size()) < 0) return -1;
    int status = 0;
    waitpid(child_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  int ends_[2] = {};
  pid_t child_ = 0;
};

TEST_F(ImportSkin, ATicketOpensAPoolInAnotherProcess) {
  Pool pool = Pool::create({}).value();
  const Buffer block = pool.allocate(MiB(1), nullptr).value();
  const std::string ticket = pool.share(block.data()).value();
  EXPECT_EQ(Import::open(ticket).status().code(), StatusCode::kFailedPrecondition) << "its own process has the pool";
  ASSERT_TRUE(begin_update(block.data()).ok());
  EXPECT_EQ(begin_update(block.data()).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(end_update(block.data(), nullptr).ok());
  EXPECT_EQ(Tell(ticket, block.data()), 0);
  EXPECT_NE(pool.share().value(), ticket) << "the pool's own ticket names no block";
  EXPECT_EQ(Import::open("no ticket").status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(pool.share(block.data(), Writes::kEnded).ok());
  EXPECT_EQ(begin_update(block.data()).code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace commpool
