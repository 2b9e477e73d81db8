// The page of a report: one HTML file that a browser shows without a network.
#pragma once

#include <ostream>
#include <string_view>

#include "src/library/base/function_ref.h"

namespace commpool::internal {

// Writes the whole file. `write_model` writes the model, as JSON in which each `<` is `\u003c`.
void WritePage(std::ostream& out, std::string_view title, FunctionRef<void(std::ostream&)> write_model);

}  // namespace commpool::internal
