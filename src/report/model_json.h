// The model as the JSON that a report's page reads.
#pragma once

#include <ostream>

#include "src/report/model.h"

namespace commpool::internal::report {

// Times become nanoseconds since the first moment that any rank's recording knows; what is older begins there.
void WriteModel(std::ostream& out, const ReportModel& report);

}  // namespace commpool::internal::report
