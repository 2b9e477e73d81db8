// The words of --backing: the library's backings, except those that need functions of the program.
#ifndef COMMPOOL_TOOLS_CLI_BACKING_NAMES_H_
#define COMMPOOL_TOOLS_CLI_BACKING_NAMES_H_

#include <map>
#include <string>

#include "commpool/pool.h"

namespace commpool::cli {

// Valid for ever. Any thread.
const std::map<std::string, Backing>& BackingNames();

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BACKING_NAMES_H_
