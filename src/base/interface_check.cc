#include "src/base/interface_check.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <vector>

#include "src/base/interface.h"

namespace commpool::internal {

namespace {

// Those that are up and have an IPv4 address.
std::vector<std::string> UsableInterfaces() {
  std::vector<std::string> names;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return names;
  for (const ifaddrs* entry = interfaces; entry != nullptr; entry = entry->ifa_next) {
    const bool usable =
        entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET && (entry->ifa_flags & IFF_UP) != 0;
    if (usable) names.emplace_back(entry->ifa_name);
  }
  freeifaddrs(interfaces);
  return names;
}

}  // namespace

Status CheckInterface(const std::string& chosen) {
  in_addr literal = {};
  if (chosen.empty() || inet_pton(AF_INET, chosen.c_str(), &literal) == 1) return Status();
  const std::vector<std::string> names = UsableInterfaces();
  const auto matches = [&](const std::string& name) { return InterfaceMatches(name, chosen); };
  if (std::any_of(names.begin(), names.end(), matches)) return Status();
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  return Status(StatusCode::kInvalidArgument, "COMMPOOL_INTERFACE is \"" + chosen +
                                                  "\": it may be an address or name an interface of this host: " +
                                                  (known.empty() ? "none is up" : known));
}

}  // namespace commpool::internal
