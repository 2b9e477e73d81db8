// Starts a program in place of this one, with libraries of ours preloaded. One thread.
#pragma once

#include <string>
#include <vector>

#include "commpool/status.h"

namespace commpool::cli {

// Puts the text before what the variable of the environment has.
void Prepend(const char* variable, const std::string& text);

// A library that lies in lib/commpool of an install tree, or where Bazel built it, below src/interpose.
Result<std::string> FindPreloaded(const std::string& bazel_folder, const std::string& name);

// What becomes of programs that are linked statically: nothing is preloaded into them, but into what they start.
enum class Statics { kRefused, kRun };

// The file that these words start, a script's interpreter. kNotFound for a program that does not exist; kNotSupported
// for one that nothing can be preloaded into.
Result<std::string> CheckPreload(const std::vector<std::string>& words, Statics statics = Statics::kRefused);

// Whether a program or library has a function itself, as far as its symbols tell: stripped ones do not.
bool Defines(const std::string& file, const std::string& function);

// Returns only where the program cannot be started.
Status StartInPlace(std::vector<std::string> words);

}  // namespace commpool::cli
