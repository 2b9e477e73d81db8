// Puts the times of all ranks on one clock. Ranks of one host share a clock. Ranks of two hosts are aligned by their
// common agreements: no rank leaves one before the last has come, and all leave within the time of a message.
#pragma once

#include "src/report/model.h"

namespace commpool::internal::report {

// Sets each rank's offset. Where ranks of two hosts have no agreement in common, their wall clocks decide, and the
// report says for which ranks. Sorts each rank's meetings by time. REQUIRES: the ranks are in rising order.
void AlignClocks(ReportModel& report);

// Notes for each agreement which rank came last, and how much later than the first. Call it after AlignClocks.
void FindLatecomers(ReportModel& report);

}  // namespace commpool::internal::report
