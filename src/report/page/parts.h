// The page without title and model, in the three parts that these two stand between; made by join_page.py.
#pragma once

#include <string_view>

namespace commpool::internal {

extern const std::string_view kPageBeforeTitle;
extern const std::string_view kPageBeforeModel;
extern const std::string_view kPageAfterModel;

}  // namespace commpool::internal
