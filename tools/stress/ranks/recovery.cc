#include "tools/stress/ranks/recovery.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "src/library/pool/symmetric/symmetric_mode.h"

namespace commpool::cli::stress_ranks {

namespace {

std::vector<int> ReadRanks(const std::string& text) {
  std::vector<int> ranks;
  std::istringstream numbers(text);
  for (std::string number; std::getline(numbers, number, ',');) ranks.push_back(std::stoi(number));
  return ranks;
}

}  // namespace

void Recovery::Run() {
  control_.Send(WaitsLine());
  const std::vector<int> survivors = ReadRanks(control_.Await("survivors are"));
  FreeBlocks();
  Abandon();
  if (std::find(survivors.begin(), survivors.end(), rank_) != survivors.end()) MoveAndUse(survivors);
  for (PoolInUse& pool : pools_) {
    if (pool.pool != nullptr) Call([&] { return pool.pool->Close(); });
  }
}

void Recovery::Call(const std::function<Status()>& call) {
  control_.Send(BeginLine(number_));
  const Status status = call();
  control_.Send(EndLine(number_++, status, StateOf(pools_)));
}

void Recovery::FreeBlocks() {
  for (PoolInUse& pool : pools_) {
    for (CUdeviceptr& block : pool.blocks) {
      if (block != 0) static_cast<void>(runtime_.Free(std::exchange(block, 0)));
    }
  }
}

void Recovery::Abandon() {
  const auto life = communicators_.aborted() ? internal::CommunicatorLife::kEnded : internal::CommunicatorLife::kAlive;
  for (PoolInUse& pool : pools_) {
    for (const Home home : {Home::kSecond, Home::kWorld}) {
      ncclComm_t const communicator = communicators_.Of(home);
      if (pool.pool == nullptr || communicator == nullptr) continue;
      Call([&] { return pool.pool->mode().AbandonCommunicator(communicator, life); });
    }
  }
  communicators_.Abort();
}

void Recovery::MoveAndUse(const std::vector<int>& survivors) {
  const std::vector<size_t> moved = schedule_.PoolsOfSurvivors();
  if (moved.empty()) return;
  Result<ncclComm_t> home = communicators_.Join("survivors", survivors);
  Call([&] { return home.status(); });
  if (!home.ok()) return;
  for (const size_t number : moved) {
    PoolInUse& pool = pools_[number];
    Call([&] { return pool.pool->mode().AsSymmetric()->Rehome(*home); });
    Call([&] { return pool.pool->mode().Reserve(uint64_t{64} << 20); });
    Call([&] {
      Result<CUdeviceptr> block = runtime_.AllocateFrom(pool.handle, 1 << 20, nullptr);
      return block.ok() ? runtime_.Free(*block) : block.status();
    });
    Call([&] { return pool.pool->mode().AsSymmetric()->Verify(); });
    control_.Send(MovedLine());
  }
}

}  // namespace commpool::cli::stress_ranks
