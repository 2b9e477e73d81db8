// What a command tells the library that it preloads, in one variable of the environment.
#ifndef COMMPOOL_SRC_INTERPOSE_PRELOAD_SETTINGS_TEXT_H_
#define COMMPOOL_SRC_INTERPOSE_PRELOAD_SETTINGS_TEXT_H_

#include <map>
#include <string>

namespace commpool::preload {

// Of "KEY=VALUE,...". Null has none.
std::map<std::string, std::string> ReadSettings(const char* text);

}  // namespace commpool::preload

#endif  // COMMPOOL_SRC_INTERPOSE_PRELOAD_SETTINGS_TEXT_H_
