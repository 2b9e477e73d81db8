#include "src/base/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <cstdlib>

#include "src/base/environment.h"

namespace commpool::internal {

namespace {

constexpr const char* kDefaultPattern = "^docker,virbr,lo";

bool ConsumePrefix(std::string_view& text, char prefix) {
  if (text.empty() || text.front() != prefix) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

bool InterfaceMatches(std::string_view name, std::string_view pattern) {
  const bool excludes = ConsumePrefix(pattern, '^');
  const bool exact = ConsumePrefix(pattern, '=');
  bool named = false;
  while (!pattern.empty()) {
    const std::string_view entry = pattern.substr(0, pattern.find(','));
    pattern.remove_prefix(entry.size() < pattern.size() ? entry.size() + 1 : entry.size());
    if (entry.empty()) continue;
    named = named || (exact ? name == entry : name.substr(0, entry.size()) == entry);
  }
  return named != excludes;
}

std::string InterfacePattern() {
  const std::string& chosen = Environment::Get().interface;
  if (!chosen.empty()) return chosen;
  const char* nccl = std::getenv("NCCL_SOCKET_IFNAME");
  return nccl != nullptr && *nccl != '\0' ? nccl : kDefaultPattern;
}

std::string HostAddress(const std::string& pattern) {
  in_addr literal = {};
  if (inet_pton(AF_INET, pattern.c_str(), &literal) == 1) return pattern;
  std::string host = "127.0.0.1";
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return host;
  for (const ifaddrs* entry = interfaces; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_UP) == 0 || !InterfaceMatches(entry->ifa_name, pattern)) continue;
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    std::array<char, INET_ADDRSTRLEN> text = {};
    inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
    host = text.data();
    break;
  }
  freeifaddrs(interfaces);
  return host;
}

}  // namespace commpool::internal
