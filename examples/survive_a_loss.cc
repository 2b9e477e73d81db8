// A training that goes on when a rank dies, and takes the rank in again. C++20. It needs no mpirun: it starts its ranks
// itself, one for each GPU.
//
//   survive_a_loss --ranks 4                  the last rank is killed between two steps, and joins again later
//   survive_a_loss --ranks 4 --kill inside    it is killed while the others are inside a collective on windows
//   survive_a_loss --hosts 4 --agent ssh      ranks on host1 to host4, which see one /tmp
//   survive_a_loss --record FILE              adds a line of JSON: losses, memory, the time until each rank noticed
#include <nccl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "commpool/pool.h"
#include "commpool/scope.h"
#include "examples/support/device.h"
#include "examples/support/nccl_check.h"
#include "examples/support/notes.h"
#include "examples/support/perceptron.h"
#include "examples/support/worker.h"

using commpool::Buffer;
using commpool::MiB;
using commpool::Pool;
using commpool::PoolScope;
using commpool::Status;

namespace {

constexpr int kStepOfTheLoss = 60;
constexpr int kStepOfTheReturn = 120;
constexpr int kSteps = 200;
constexpr int kStepsBetweenReports = 20;
constexpr float kLearningRate = 0.03f;
constexpr int kSamplesOfARank = 64;
constexpr int kRefused = 3;
constexpr int kEndedInsideACollective = 4;
constexpr unsigned kSecondsToNotice = 10;

struct Options {
  examples::Places places;
  std::string kill = "between";
  std::string folder;  // for a rank
  std::string record;  // a file that the launcher writes
  std::string look;    // the GPU whose memory the process only looks at
  int rank = -1;       // -1: the launcher
  int epoch = 0;       // the epoch in which a rank begins
  int reserve_mib = 64;

  int victim() const { return places.ranks - 1; }
};

std::string NoticedNote(int rank) { return "noticed." + std::to_string(rank); }

Options Parse(int argc, char** argv) {
  Options options;
  for (int place = 1; place + 1 < argc; place += 2) {
    const std::string name = argv[place];
    const std::string value = argv[place + 1];
    if (name == "--ranks") options.places.ranks = std::stoi(value);
    if (name == "--hosts") options.places.hosts = std::stoi(value);
    if (name == "--agent") options.places.agent = value;
    if (name == "--kill") options.kill = value;
    if (name == "--reserve") options.reserve_mib = std::stoi(value);
    if (name == "--record") options.record = value;
    if (name == "--look") options.look = value;
    if (name == "--folder") options.folder = value;
    if (name == "--rank") options.rank = std::stoi(value);
    if (name == "--epoch") options.epoch = std::stoi(value);
  }
  return options;
}

[[noreturn]] void EndInsideACollective(int own, const char* why) {
  std::printf("rank %d: %s\n", own, why);
  std::fflush(stdout);
  _exit(kEndedInsideACollective);
}

// A loop that looked just before the loss may launch just after it. Then only the program's own clock notices the loss.
void EndUnnoticed(int) {
  constexpr char kText[] = "a rank was lost as this one launched: only the end of this process ends that\n";
  if (write(STDOUT_FILENO, kText, sizeof(kText) - 1) < 0) _exit(1);
  _exit(kEndedInsideACollective);
}

// The library's thread calls it. Where no collective runs, the training loop looks before its next launch.
void OnLostRank(int rank, int in_flight, void* context) {
  const Options& own = *static_cast<const Options*>(context);
  examples::Notes(own.folder).WriteTime(NoticedNote(own.rank));
  if (in_flight == 0) {
    alarm(kSecondsToNotice);
    return;
  }
  const std::string why =
      "rank " + std::to_string(rank) + " is lost inside a collective: only the end of this process ends it";
  EndInsideACollective(own.rank, why.c_str());
}

int FreeMemory() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  examples::Check(cuMemGetInfo(&free_bytes, &total_bytes));
  return static_cast<int>(free_bytes >> 20);
}

// One rank; the other ranks may change.
class Worker {
 public:
  explicit Worker(const Options& options)
      : options_(options),
        notes_(options.folder),
        gpu_(options.places.DeviceOf(options.rank)),
        samples_(examples::SamplesOfTheSine(options.rank, kSamplesOfARank)),
        model_(samples_, gpu_.stream),
        epoch_(options.epoch) {
    members_.resize(static_cast<size_t>(options.places.ranks));
    std::iota(members_.begin(), members_.end(), 0);
  }

  void Run() {
    const int free_before = FreeMemory();
    comm_ = examples::Meet(options_.folder, epoch_, members_, options_.rank);
    MakePool();
    if (epoch_ > 0) Broadcast(model_.parameters(), model_.parameters());
    for (int step = epoch_ > 0 ? kStepOfTheReturn : 0; step <= kSteps; ++step) {
      if (step == kStepOfTheReturn && epoch_ == 1) TakeIn(options_.victim());
      if (pool_->lost_rank() >= 0) GoOn();  // looks before it launches anything
      Step(step);
      // Collective: memory that every rank has freed serves again. Here a lost rank shows at the latest.
      const Status reclaimed = pool_->reclaim().status();
      if (!reclaimed.ok()) GoOn();
    }
    Finish(free_before);
  }

 private:
  bool leads() const { return options_.rank == members_.front(); }

  void MakePool() {
    commpool::PoolOptions options;
    options.device = gpu_.number;
    options.symmetric_across = comm_;
    options.name = "gradients";
    options.deadline_ms = 20000;
    options.on_lost_rank = OnLostRank;
    options.lost_rank_context = const_cast<Options*>(&options_);
    pool_ = Pool::create(options).value();
    if (leads()) std::printf("%s\n", examples::DriverLine().c_str());
    if (leads()) notes_.Write("driver", examples::DriverLine());
    // A rank that joins has already made memory of the same size.
    if (epoch_ == 0) pool_->reserve(MiB(static_cast<std::uint64_t>(options_.reserve_mib))).or_throw();
  }

  void DieWhere(const char* where, int step) const {
    const bool dies = options_.kill == where && options_.rank == options_.victim() && epoch_ == 0;
    if (!dies || step != kStepOfTheLoss) return;
    notes_.WriteTime("killed");
    std::raise(SIGKILL);
  }

  void Step(int step) {
    PoolScope scope(*pool_);
    Buffer gradients = model_.backward();
    DieWhere("inside", step);
    examples::Check(ncclAllReduce(gradients.data(), gradients.data(), model_.gradient_count(), ncclFloat, ncclSum,
                                  comm_, gpu_.stream));
    const float ranks = static_cast<float>(members_.size());
    model_.update(gradients, kLearningRate / ranks);
    const float loss = examples::Download(gradients, gpu_.stream).back() / ranks;
    if (leads() && step % kStepsBetweenReports == 0) {
      std::printf("step %3d  loss %.5f  %d ranks\n", step, loss, static_cast<int>(members_.size()));
    }
    if (step == 0) first_loss_ = loss;
    if (leads() && step == 0) notes_.Write("loss.first", loss);
    if (leads() && step == kStepOfTheLoss - 1) notes_.Write("loss.before", loss);
    loss_ = loss;
    DieWhere("between", step);
  }

  // In this order, because NCCL releases the memory of windows only while their communicator is alive.
  void GoOn() {
    alarm(0);
    notes_.WriteTime(NoticedNote(options_.rank));
    pool_->abandon(comm_).or_throw();
    examples::Check(ncclCommAbort(comm_));
    const int lost = examples::CallTheRoll(options_.folder, epoch_, members_, options_.rank);
    if (lost < 0) EndInsideACollective(options_.rank, "other ranks ended inside a collective: nobody is left to go on");
    const int number = members_[static_cast<size_t>(lost)];
    members_.erase(members_.begin() + lost);
    MoveOn();
    if (leads()) std::printf("rank %d is lost: %d ranks go on\n", number, static_cast<int>(members_.size()));
  }

  void TakeIn(int rank) {
    pool_->deregister(comm_).or_throw();
    examples::Check(ncclCommDestroy(comm_));
    members_.push_back(rank);
    MoveOn();
    Broadcast(model_.parameters(), model_.parameters());
    if (leads()) std::printf("rank %d is back: %d ranks go on\n", rank, static_cast<int>(members_.size()));
  }

  void MoveOn() {
    comm_ = examples::Meet(options_.folder, ++epoch_, members_, options_.rank);
    pool_->rehome(comm_).or_throw();
  }

  void Broadcast(const Buffer& sent, const Buffer& received) const {
    examples::Check(ncclBroadcast(sent.data(), const_cast<void*>(static_cast<const void*>(received.data())),
                                  sent.bytes(), ncclChar, 0, comm_, gpu_.stream));
    examples::Check(cuStreamSynchronize(gpu_.stream));
  }

  void Finish(int free_before) {
    if (epoch_ != 2) throw std::runtime_error("no rank was lost and came back");
    if (options_.epoch == 0 && !(loss_ < first_loss_ / 4)) throw std::runtime_error("the loss did not fall");
    const Buffer& mine = model_.parameters();
    const Buffer first = commpool::allocate(mine.bytes(), gpu_.stream).value();
    Broadcast(mine, first);
    if (examples::Download(mine, gpu_.stream) != examples::Download(first, gpu_.stream)) {
      throw std::runtime_error("the ranks' parameters differ");
    }
    const std::uint64_t held = pool_->stats().value().held_bytes;
    pool_->close().or_throw();
    examples::Check(ncclCommDestroy(comm_));
    std::printf("rank %d: %d MiB free before, %d MiB after, %d MiB held by NCCL\n", options_.rank, free_before,
                FreeMemory(), static_cast<int>(held >> 20));
    notes_.Write("held." + std::to_string(options_.rank), static_cast<double>(held >> 20));
    if (leads()) notes_.Write("loss.after", loss_);
  }

  const Options options_;
  const examples::Notes notes_;
  examples::Device gpu_;
  const std::vector<examples::Sample> samples_;
  examples::Perceptron model_;
  std::vector<int> members_;  // by their first numbers
  int epoch_ = 0;
  ncclComm_t comm_ = nullptr;
  std::optional<Pool> pool_;
  float first_loss_ = 0;
  float loss_ = 0;
};

pid_t Start(const Options& options, int rank, int epoch) {
  return examples::StartRank(
      options.places, rank,
      {"--ranks", std::to_string(options.places.ranks), "--hosts", std::to_string(options.places.hosts), "--kill",
       options.kill, "--reserve", std::to_string(options.reserve_mib), "--folder", options.folder, "--rank",
       std::to_string(rank), "--epoch", std::to_string(epoch)});
}

int Look(const Options& options) {
  const examples::Device gpu(options.places.DeviceOf(options.rank));
  const int free = FreeMemory();
  std::printf("GPU of rank %d: %d MiB free %s\n", options.rank, free, options.look.c_str());
  examples::Notes(options.folder).Write("free." + options.look + "." + std::to_string(options.rank), free);
  return 0;
}

bool EndedWith(int state, int status) { return WIFEXITED(state) && WEXITSTATUS(state) == status; }

// Free memory while no rank runs, from a process of its own, because the launcher uses no GPU. Returns whether each
// rank has a GPU.
bool LookAtMemory(const Options& options, const std::string& when) {
  bool all_there = true;
  for (int rank = 0; rank < options.places.ranks; ++rank) {
    const int state = examples::AwaitRank(examples::StartRank(
        options.places, rank,
        {"--ranks", std::to_string(options.places.ranks), "--hosts", std::to_string(options.places.hosts), "--rank",
         std::to_string(rank), "--folder", options.folder, "--look", when}));
    all_there = all_there && EndedWith(state, 0);
  }
  return all_there;
}

// A shell on the way reports the signal as an exit status.
bool WasKilled(int state) {
  return WIFSIGNALED(state) ? WTERMSIG(state) == SIGKILL : WEXITSTATUS(state) == 128 + SIGKILL;
}

// The time since the kill; null where the rank did not live long enough.
std::string Noticed(const examples::Notes& notes, const std::string& note) {
  const std::optional<std::string> killed = notes.Read("killed");
  const std::optional<std::string> noticed = notes.Read(note);
  return killed && noticed ? std::to_string(std::stod(*noticed) - std::stod(*killed)) : "null";
}

// Appends one line to the file.
void Record(const Options& options, bool as_expected) {
  const examples::Notes notes(options.folder);
  std::string ranks;
  for (int rank = 0; rank < options.places.ranks; ++rank) {
    const std::string number = std::to_string(rank);
    ranks += (ranks.empty() ? "" : ",") + std::string("{\"rank\":") + number +
             ",\"free_mib_before\":" + notes.Number("free.before." + number) +
             ",\"free_mib_after\":" + notes.Number("free.after." + number) +
             ",\"held_by_nccl_mib\":" + notes.Number("held." + number) +
             ",\"noticed_after_ms\":" + Noticed(notes, NoticedNote(rank)) + "}";
  }
  std::ofstream file(options.record, std::ios::app);
  file << "{\"command\":\"survive_a_loss\",\"driver\":\"" << notes.Read("driver").value_or("") << "\",\"kill\":\""
       << options.kill << "\",\"hosts\":" << options.places.hosts << ",\"ranks\":" << options.places.ranks
       << ",\"reserve_mib\":" << options.reserve_mib << ",\"loss\":{\"first\":" << notes.Number("loss.first")
       << ",\"before\":" << notes.Number("loss.before") << ",\"after\":" << notes.Number("loss.after")
       << "},\"each_rank\":[" << ranks << "],\"as_expected\":" << (as_expected ? "true" : "false") << "}\n";
  if (!file.flush()) throw std::runtime_error("cannot write " + options.record);
}

int Launch(Options options) {
  std::string folder = "/tmp/survive_a_loss.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder can be made in /tmp");
  options.folder = folder;
  // Ranks wait for each other, so none starts where one has no GPU. That one has printed the reason.
  if (!LookAtMemory(options, "before")) {
    std::filesystem::remove_all(folder);
    std::printf("refused: not each of %d ranks has a GPU\n", options.places.ranks);
    return kRefused;
  }
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < options.places.ranks; ++rank) ranks.push_back(Start(options, rank, 0));
  bool as_expected = WasKilled(examples::AwaitRank(ranks.back()));
  const int status = options.kill == "inside" ? kEndedInsideACollective : 0;
  if (status == 0) {
    ranks.back() = Start(options, options.victim(), 2);
  } else {
    ranks.pop_back();
  }
  for (const pid_t rank : ranks) {
    as_expected = EndedWith(examples::AwaitRank(rank), status) && as_expected;
  }
  LookAtMemory(options, "after");
  if (!options.record.empty()) Record(options, as_expected);
  std::filesystem::remove_all(folder);
  std::printf("%s\n", as_expected ? "every rank ended as it should" : "a rank ended as it should not");
  return as_expected ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  try {
    if (options.rank < 0) return Launch(options);
    if (!options.look.empty()) return Look(options);
    std::signal(SIGALRM, EndUnnoticed);
    Worker(options).Run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", options.rank, error.what());
    std::fflush(stdout);
    _exit(1);  // other ranks may wait inside a collective, and nothing here may wait for them
  }
}
