// Which of this host's network interfaces other hosts are told to use. Any thread.
#ifndef COMMPOOL_SRC_BASE_INTERFACE_H_
#define COMMPOOL_SRC_BASE_INTERFACE_H_

#include <string>
#include <string_view>

#include "commpool/status.h"

namespace commpool::internal {

// Whether the interface `name` is one that `pattern` allows, in the notation of NCCL_SOCKET_IFNAME: a comma list of
// prefixes; a leading "^" excludes what the list names, a leading "=" compares whole names.
bool InterfaceMatches(std::string_view name, std::string_view pattern);

// An address of this host, as text.
struct HostAddress {
  std::string text;
  std::string why_local;  // why only this host reaches it; empty where others do
};

// The IPv4 address of the first interface that is up and fits `pattern`; `pattern` itself where it is an IPv4 address;
// 127.0.0.1 where none fits.
HostAddress FindHostAddress(const std::string& pattern);

// Whether `chosen`, of COMMPOOL_INTERFACE, names something that is there: a misspelt one would leave the ranks on
// loopback. OK for an empty text, for an IPv4 address, and where some interface that is up has an address and matches
// the pattern. Errors list the interfaces.
Status CheckInterface(const std::string& chosen);

// The pattern that this process is told to use: COMMPOOL_INTERFACE, else NCCL_SOCKET_IFNAME, else "^docker,virbr,lo".
std::string InterfacePattern();

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_INTERFACE_H_
