// From recordings to the model of a report.
#pragma once

#include "src/report/kept.h"
#include "src/report/model.h"
#include "src/report/recordings.h"

namespace commpool::internal::report {

// Reads one recording after the other, once: memory is that of the model and of one rank's living blocks.
ReportModel BuildReport(const Recordings& recordings, const Limits& limits = {});

}  // namespace commpool::internal::report
