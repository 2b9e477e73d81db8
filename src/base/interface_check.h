// Whether COMMPOOL_INTERFACE names something that is there: a misspelt one would leave the ranks on loopback. Any
// thread.
#ifndef COMMPOOL_SRC_BASE_INTERFACE_CHECK_H_
#define COMMPOOL_SRC_BASE_INTERFACE_CHECK_H_

#include <string>

#include "commpool/status.h"

namespace commpool::internal {

// OK for an empty text, for an IPv4 address, and where some interface that is up has an address and matches the pattern
// (interface.h). Errors list the interfaces.
Status CheckInterface(const std::string& chosen);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_INTERFACE_CHECK_H_
