// The words of --backing: the library's backings, except those that need functions of the program.
#pragma once

#include <map>
#include <string>

#include "commpool/pool.h"

namespace commpool::cli {

// Valid for ever. Any thread.
const std::map<std::string, Backing>& BackingNames();

}  // namespace commpool::cli
