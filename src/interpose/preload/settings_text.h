// What a command tells the library that it preloads, in one variable of the environment.
#pragma once

#include <map>
#include <string>

namespace commpool::preload {

// Of "KEY=VALUE,...". Null has none.
std::map<std::string, std::string> ReadSettings(const char* text);

}  // namespace commpool::preload
