// Takes the clocks of ranks to one. Ranks of one host have the same clock; others are aligned by the agreements that
// they have in common: no rank leaves one before the last has come, and all leave within the time of a message.
#ifndef COMMPOOL_SRC_REPORT_CLOCKS_H_
#define COMMPOOL_SRC_REPORT_CLOCKS_H_

#include "src/report/model.h"

namespace commpool::internal::report {

// Sets the ranks' offsets, and notes for which ranks the hosts' wall clocks had to do. Ranks are in their order; their
// meetings get sorted.
void AlignClocks(ReportModel& report);

// Of each agreement the rank that came last, and by how much. After AlignClocks.
void FindLatecomers(ReportModel& report);

}  // namespace commpool::internal::report

#endif  // COMMPOOL_SRC_REPORT_CLOCKS_H_
