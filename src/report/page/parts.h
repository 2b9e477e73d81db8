// The page without title and model, in the three parts that these two stand between; made by join_page.py.
#ifndef COMMPOOL_SRC_REPORT_PAGE_PARTS_H_
#define COMMPOOL_SRC_REPORT_PAGE_PARTS_H_

#include <string_view>

namespace commpool::internal {

extern const std::string_view kPageBeforeTitle;
extern const std::string_view kPageBeforeModel;
extern const std::string_view kPageAfterModel;

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REPORT_PAGE_PARTS_H_
