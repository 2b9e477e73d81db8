#include "tools/stress/ranks/coverage.h"

#include <iomanip>
#include <sstream>

namespace commpool::cli::stress_ranks {

void Coverage::Add(const Schedule& schedule, const std::vector<RankRecord>& records) {
  for (const RankRecord& record : records) moved_ += record.moved;
  for (const Fault& fault : schedule.faults) {
    for (const FaultRecord& happened : records[static_cast<size_t>(fault.victim)].faults) {
      ++counts_[{happened.point, fault.kind}];
    }
  }
}

std::string Coverage::Table() const {
  constexpr int kPointWidth = 20;
  constexpr int kKindWidth = 9;
  std::ostringstream table;
  table << std::left << std::setw(kPointWidth) << "where" << std::right;
  for (const Kind kind : kKinds) table << std::setw(kKindWidth) << NameOf(kind);
  for (const Point point : kPoints) {
    table << '\n' << std::left << std::setw(kPointWidth) << NameOf(point) << std::right;
    for (const Kind kind : kKinds) {
      const auto count = counts_.find({point, kind});
      const std::string none = Happens(kind, point) ? "0" : "-";
      table << std::setw(kKindWidth) << (count == counts_.end() ? none : std::to_string(count->second));
    }
  }
  table << '\n';
  if (moved_ > 0)
    table << moved_ << " times a survivor moved a pool to a home of survivors, used and closed it there\n";
  return table.str();
}

}  // namespace commpool::cli::stress_ranks
