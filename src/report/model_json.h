// The model as the JSON that a report's page reads.
#ifndef COMMPOOL_SRC_REPORT_MODEL_JSON_H_
#define COMMPOOL_SRC_REPORT_MODEL_JSON_H_

#include <ostream>

#include "src/report/model.h"

namespace commpool::internal::report {

// Times become nanoseconds since the first moment that any rank's recording knows; what is older begins there.
void WriteModel(std::ostream& out, const ReportModel& report);

}  // namespace commpool::internal::report

#endif  // COMMPOOL_SRC_REPORT_MODEL_JSON_H_
