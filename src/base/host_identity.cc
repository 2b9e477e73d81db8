#include "src/base/host_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "src/base/keyed_hash.h"

namespace commpool::internal {

namespace {

// A text that differs at each boot of each host; the host's name where /proc does not tell one.
std::string Boot() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  if (!boot.empty()) return boot;
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string NetworkNamespace() {
  struct stat file = {};
  if (stat("/proc/self/ns/net", &file) != 0) return "";
  return std::to_string(file.st_dev) + ":" + std::to_string(file.st_ino);
}

}  // namespace

uint64_t HostIdentity() {
  const std::string place = Boot() + " " + NetworkNamespace();
  return KeyedHash(HashKey{}, place.data(), place.size());
}

}  // namespace commpool::internal
