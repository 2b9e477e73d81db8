// Chooses the network interface that other hosts should connect to. Any thread.
#ifndef COMMPOOL_SRC_BASE_INTERFACE_H_
#define COMMPOOL_SRC_BASE_INTERFACE_H_

#include <string>
#include <string_view>

#include "commpool/status.h"

namespace commpool::internal {

// Whether `pattern` allows the interface `name`. The notation is that of NCCL_SOCKET_IFNAME: a comma list of prefixes;
// a leading "^" excludes the list, a leading "=" compares whole names.
bool InterfaceMatches(std::string_view name, std::string_view pattern);

// An address of this host, as text.
struct HostAddress {
  std::string text;
  std::string why_local;  // why only this host reaches it; empty where others do
};

// The IPv4 address of the first interface that is up and fits `pattern`; 127.0.0.1 where none fits. If `pattern` is an
// IPv4 address itself, returns that address.
HostAddress FindHostAddress(const std::string& pattern);

// Checks `chosen`, the value of COMMPOOL_INTERFACE: with a misspelt one the ranks would silently use loopback. OK for
// an empty text, for an IPv4 address, and for a pattern that matches an interface that is up and has an address. Errors
// list the interfaces.
Status CheckInterface(const std::string& chosen);

// COMMPOOL_INTERFACE, else NCCL_SOCKET_IFNAME, else "^docker,virbr,lo".
std::string InterfacePattern();

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_INTERFACE_H_
