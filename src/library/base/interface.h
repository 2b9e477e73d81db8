// Chooses the network interface that other hosts should connect to, and tells whether two processes are on one host, so
// that a loopback address means the same place for both. Any thread.
#pragma once

#include <cstdint>
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

// "host" where the system does not tell.
std::string HostName();
// A text that differs at each boot of each host; empty where the system does not tell.
std::string BootOfHost();

// Equal for processes of one boot and one network namespace, different otherwise. The host's name is not enough:
// containers of one machine may share it, and have loopbacks of their own.
uint64_t HostIdentity();

}  // namespace commpool::internal
