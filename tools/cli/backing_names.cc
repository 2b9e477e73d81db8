#include "tools/cli/backing_names.h"

#include "src/library/backing/backing_table.h"

namespace commpool::cli {

const std::map<std::string, Backing>& BackingNames() {
  static const std::map<std::string, Backing> names = [] {
    std::map<std::string, Backing> made;
    for (const internal::BackingRow* const row : internal::AllBackings()) {
      if (row->maker == internal::Maker::kLibrary) made.emplace(row->name, static_cast<Backing>(row->kind));
    }
    return made;
  }();
  return names;
}

}  // namespace commpool::cli
