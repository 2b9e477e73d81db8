#include "src/library/base/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "src/library/base/environment.h"
#include "src/library/base/file_descriptor.h"
#include "src/library/base/keyed_hash.h"

namespace commpool::internal {

namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kDefaultPattern = "^docker,virbr,lo";

// Describes an address. `why`: the reason why it was chosen; kept only where the address reaches this host alone.
HostAddress Describe(in_addr address, const std::string& why) {
  std::array<char, INET_ADDRSTRLEN> text = {};
  inet_ntop(AF_INET, &address, text.data(), text.size());
  const bool loopback = ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET;
  return {text.data(), loopback ? why : ""};
}

struct Interface {
  std::string name;
  in_addr address;
};

// The interfaces that are up and have an IPv4 address.
Result<std::vector<Interface>> UsableInterfaces() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return SystemFailure("this host's interfaces cannot be read");
  std::vector<Interface> usable;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || (entry->ifa_flags & IFF_UP) == 0)
      continue;
    usable.push_back({entry->ifa_name, reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr});
  }
  freeifaddrs(all);
  return usable;
}

std::string NetworkNamespace() {
  struct stat file = {};
  if (stat("/proc/self/ns/net", &file) != 0) return "";
  return std::to_string(file.st_dev) + ":" + std::to_string(file.st_ino);
}

}  // namespace

bool InterfaceMatches(std::string_view name, std::string_view pattern) {
  const bool excludes = pattern.starts_with('^');
  if (excludes) pattern.remove_prefix(1);
  const bool exact = pattern.starts_with('=');
  if (exact) pattern.remove_prefix(1);
  bool named = false;
  while (!pattern.empty()) {
    const std::string_view entry = pattern.substr(0, pattern.find(','));
    pattern.remove_prefix(entry.size() < pattern.size() ? entry.size() + 1 : entry.size());
    if (entry.empty()) continue;
    named = named || (exact ? name == entry : name.starts_with(entry));
  }
  return named != excludes;
}

std::string InterfacePattern() {
  const std::string& chosen = Environment::Get().interface;
  if (!chosen.empty()) return chosen;
  const char* nccl = std::getenv("NCCL_SOCKET_IFNAME");
  return nccl != nullptr && *nccl != '\0' ? nccl : kDefaultPattern;
}

HostAddress FindHostAddress(const std::string& pattern) {
  in_addr literal = {};
  if (inet_pton(AF_INET, pattern.c_str(), &literal) == 1) return Describe(literal, "it was asked for by its address");
  const Result<std::vector<Interface>> interfaces = UsableInterfaces();
  if (!interfaces.ok()) return {kLoopback, interfaces.status().message()};
  for (const Interface& interface : *interfaces) {
    if (!InterfaceMatches(interface.name, pattern)) continue;
    return Describe(interface.address, "\"" + pattern + "\" leads to the interface " + interface.name);
  }
  return {kLoopback, "no interface that is up has an IPv4 address and fits \"" + pattern + "\""};
}

Status CheckInterface(const std::string& chosen) {
  in_addr literal = {};
  if (chosen.empty() || inet_pton(AF_INET, chosen.c_str(), &literal) == 1) return Status();
  const Result<std::vector<Interface>> interfaces = UsableInterfaces();
  std::string known;
  for (const Interface& interface : interfaces.ok() ? *interfaces : std::vector<Interface>()) {
    if (InterfaceMatches(interface.name, chosen)) return Status();
    known += (known.empty() ? "" : ", ") + interface.name;
  }
  return Status(StatusCode::kInvalidArgument, "COMMPOOL_INTERFACE is \"" + chosen +
                                                  "\": it may be an address or name an interface of this host: " +
                                                  (known.empty() ? "none is up" : known));
}

std::string HostName() {
  std::array<char, 256> name = {};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "host";
  return name.data();
}

std::string BootOfHost() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return boot;
}

uint64_t HostIdentity() {
  const std::string boot = BootOfHost();
  const std::string place = (boot.empty() ? HostName() : boot) + " " + NetworkNamespace();
  return KeyedHash(HashKey{}, place.data(), place.size());
}

}  // namespace commpool::internal
