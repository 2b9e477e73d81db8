#include "examples/support/worker.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "examples/support/nccl_check.h"

namespace examples {

namespace {

std::string OwnPath() {
  std::vector<char> path(4096);
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) throw std::runtime_error("this program does not know its own file");
  return std::string(path.data(), static_cast<size_t>(length));
}

// Writes a file so that readers see all of it or nothing.
void Publish(const std::string& path, const ncclUniqueId& id) {
  const std::string unfinished = path + ".unfinished";
  std::ofstream(unfinished, std::ios::binary).write(id.internal, sizeof(id.internal));
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) throw std::runtime_error("cannot write " + path);
}

ncclUniqueId Await(const std::string& path) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  ncclUniqueId id = {};
  while (!std::ifstream(path, std::ios::binary).read(id.internal, sizeof(id.internal))) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("nobody wrote " + path);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return id;
}

}  // namespace

int CallTheRoll(const std::string& folder, int epoch, const std::vector<int>& members, int rank) {
  const std::string prefix = folder + "/here." + std::to_string(epoch) + ".";
  if (!std::ofstream(prefix + std::to_string(rank))) throw std::runtime_error("cannot write to " + folder);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < deadline) {
    std::vector<int> missing;
    for (size_t place = 0; place < members.size(); ++place) {
      if (!std::ifstream(prefix + std::to_string(members[place]))) missing.push_back(static_cast<int>(place));
    }
    if (missing.size() == 1) return missing.front();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return -1;
}

int Places::DeviceOf(int rank) const {
  int device = 0;
  for (int other = 0; other < rank; ++other) device += HostOf(other) == HostOf(rank) ? 1 : 0;
  return device;
}

pid_t StartRank(const Places& places, int rank, const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  if (!places.agent.empty()) words = {places.agent, "host" + std::to_string(places.HostOf(rank) + 1)};
  words.push_back(OwnPath());
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> command;
  for (std::string& word : words) command.push_back(word.data());
  command.push_back(nullptr);
  const pid_t process = fork();
  if (process < 0) throw std::runtime_error("no process can be started");
  if (process > 0) return process;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // ranks end with the launcher
  execv(command[0], command.data());
  _exit(127);
}

int AwaitRank(pid_t process) {
  int state = 0;
  if (waitpid(process, &state, 0) != process) throw std::runtime_error("a rank's process is not there");
  return state;
}

ncclComm_t Meet(const std::string& folder, int epoch, const std::vector<int>& members, int rank) {
  const std::string path = folder + "/unique_id." + std::to_string(epoch);
  ncclUniqueId id = {};
  if (members.front() == rank) {
    Check(ncclGetUniqueId(&id));
    Publish(path, id);
  } else {
    id = Await(path);
  }
  const auto place = std::find(members.begin(), members.end(), rank) - members.begin();
  ncclComm_t communicator = nullptr;
  Check(ncclCommInitRank(&communicator, static_cast<int>(members.size()), id, static_cast<int>(place)));
  return communicator;
}

}  // namespace examples
